// What the figures share: elements, the look of controls, and what a figure keeps in its model.
//
// A figure begins with `import { … } from "./kit.mjs";`. Node and an editor follow that line. A page or a notebook cannot,
// because a built figure stands alone: there `rlhf_book.figures.joined` puts this file in the place of the line.

// The look that every figure begins with; what a figure says of the same element in its own style comes later and wins.
export const LOOK = `
.live-figure { color: var(--jp-ui-font-color1, inherit); font-size: 0.9rem; line-height: 1.4; max-width: 46rem; text-align: start; }
.live-figure :is(.controls, .examples) { display: flex; flex-wrap: wrap; align-items: center; }
.live-figure .controls { gap: 0.5rem 1rem; margin-bottom: 0.6rem; } .live-figure .examples { gap: 0.3rem; }
.live-figure :is(button, select) { font: inherit; color: inherit; background: transparent; padding: 0.15rem 0.5rem;
  border: 1px solid currentColor; border-radius: 0.3rem; cursor: pointer; min-height: 1.75rem; max-width: 100%; }
.live-figure option { color: CanvasText; background: Canvas; }
.live-figure :is(button, select, input, [tabindex]):focus-visible { outline: 3px solid #3b8fcf; outline-offset: 2px; }
.live-figure label { display: inline-flex; gap: 0.1rem 0.4rem; align-items: center; }
.live-figure input[type=range] { min-width: 0; width: 100%; margin: 0; accent-color: #3b8fcf; }
.live-figure output { font-variant-numeric: tabular-nums; white-space: nowrap; }
.live-figure table { width: 100%; table-layout: fixed; border-collapse: collapse; margin: 0; font-size: inherit; color: inherit; }
.live-figure :is(th, td) { padding: 0.1rem 0.2rem; border: 0; background: none; font-weight: normal; text-align: start; }
.live-figure thead th { vertical-align: bottom; font-size: 0.85em; font-weight: 600; overflow-wrap: anywhere; }
.live-figure .up { fill: #3b8fcf; } .live-figure .down { fill: #d9671e; }
.live-figure svg .edge { stroke: currentColor; stroke-opacity: 0.4; } .live-figure svg .band { fill: currentColor; fill-opacity: 0.1; }
.live-figure svg .handle { cursor: grab; touch-action: none; } .live-figure svg .handle:focus-visible { outline-offset: -2px; }
.live-figure button[aria-pressed=true] { background: color-mix(in srgb, currentColor 16%, transparent); font-weight: 600; }
.live-figure .said { margin: 0.6rem 0 0; min-height: 5.6em; }
.live-figure .key { margin: 0.3rem 0 0; font-size: 0.85em; }
`;

// An element of HTML; what is no property of it becomes an attribute.
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

// An element of SVG.
export function picture(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// The element that holds a figure, with its style; a page of the book says the words on the element around this one. What
// all figures share stands once, before the style of any: in each figure it would win over the one of the figure before.
export function figure(model, name, style) {
  if (!document.getElementById("live-figure-look")) document.head.append(element("style", { id: "live-figure-look", textContent: LOOK }));
  const root = element("div", { className: `live-figure ${name}` }, element("style", { textContent: style }));
  if (model.get("alt")) {
    root.setAttribute("role", "group");
    root.setAttribute("aria-label", model.get("alt"));
  }
  return root;
}

// How a figure reads its values, each with what it is where a page gives none, and how it changes several at once.
export const reader = (model) => (name, otherwise) => model.get(name) ?? otherwise;
export const writer = (model) => (changes) => {
  for (const [name, value] of Object.entries(changes)) model.set(name, value);
  model.save_changes();
};

// A row of buttons, one an example; `set` makes of an example what it changes.
export function buttons(examples, write, set) {
  const row = element("div", { className: "examples", role: "group", ariaLabel: "examples" });
  for (const [name, example] of Object.entries(examples)) {
    const button = element("button", { type: "button", textContent: name });
    button.addEventListener("click", () => write(set(example)));
    row.append(button);
  }
  return row;
}

// A group of buttons of which one is pressed, named by the values that they choose: the group, and what presses one.
export function choice(label, options, chosen) {
  const group = element("div", { className: "examples", role: "group", ariaLabel: label });
  const made = Object.entries(options).map(([value, text]) => {
    const button = element("button", { type: "button", textContent: text });
    button.addEventListener("click", () => chosen(value));
    group.append(button);
    return [value, button];
  });
  return [group, (value) => { for (const [own, button] of made) button.setAttribute("aria-pressed", String(own === String(value))); }];
}

// A slider with its words and its number; what it calls hears the number.
export function slider(name, text, limits, moved) {
  const input = element("input", { type: "range", className: name, ...limits }), shown = element("output");
  input.addEventListener("input", () => moved(Number(input.value)));
  const show = (value, words = String(value)) => {
    input.value = value;
    input.setAttribute("aria-valuetext", words);
    shown.textContent = words;
  };
  return [element("label", {}, `${text} `, input, shown), show];
}

// Where a pointer goes on a drawing while it is held, in the drawing's own units.
export function drag(svg, target, moved) {
  const place = (event) => new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
  target.addEventListener("pointerdown", (event) => {
    target.setPointerCapture(event.pointerId);
    moved(place(event));
  });
  target.addEventListener("pointermove", (event) => { if (target.hasPointerCapture(event.pointerId)) moved(place(event)); });
}

// A mark that mouse, touch and keyboard move, a slider to a screen reader. `value` reads its number, `moved` hears the next
// one, `at` makes a number of a place on the drawing.
export function handle(svg, label, { min, max, step }, { value, moved, at }, ...marks) {
  const mark = picture("g", { class: "handle", tabindex: 0, role: "slider", "aria-label": label, "aria-valuemin": min, "aria-valuemax": max },
    ...marks);
  const snap = (x) => Number((Math.round(Math.min(max, Math.max(min, x)) / step) * step).toFixed(4));
  drag(svg, mark, (place) => moved(snap(at(place))));
  mark.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10 }[event.key];
    const to = { Home: min, End: max }[event.key];
    if (by === undefined && to === undefined) return;
    event.preventDefault();
    moved(snap(to ?? value() + by * step));
  });
  svg.append(mark);
  return mark;
}

// A drawing whose unit is a pixel at any width, so that its words keep their size on a phone; `draw` hears of each width.
export function canvas(root, height, draw) {
  const svg = picture("svg", { class: "canvas", role: "group" });
  svg.style.cssText = "display: block; width: 100%; overflow: visible;";
  const width = () => Math.max(280, Math.min(736, root.clientWidth || 640));
  const fit = () => {
    svg.setAttribute("viewBox", `0 0 ${width()} ${height}`);
    draw();
  };
  new ResizeObserver(fit).observe(root);
  return [svg, width, fit];
}

// A number in print: a true minus, and no minus before a zero.
export const say = (x, digits = 2) => x.toFixed(digits).replace(/^-(0(\.0*)?)$/, "$1").replace("-", "\u2212");
