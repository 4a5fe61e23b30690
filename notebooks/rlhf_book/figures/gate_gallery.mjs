// The gate gallery: choose two rows of the table and a ratio, and see the weight that a token's score gets in each.
//
// One file for notebooks (anywidget) and for pages of the book, with nothing but the browser beneath it. What it
// computes is in `maths`; the tests hold it to the library's gradient_weight, row by row.

const LIMIT = 3; // the ratio runs from 2^-3 to 2^3
const REACH = 5.5; // the weight's axis, from -REACH to REACH; a clip's open side leaves it

const clip = (low, high) => (w, A) => ((A > 0 && w > 1 + high) || (A < 0 && w < 1 - low) ? 0 : w * A);
const on_policy = (w, A) => A;
const sigmoid = (x) => 1 / (1 + Math.exp(-x));
const fade = (tau, w) => 4 * sigmoid(tau * (w - 1)) * (1 - sigmoid(tau * (w - 1))) * w;

const maths = {
  // row: [weight on grad log pi as a function of ratio and advantage, its colour in the book]
  rows: {
    reinforce: [on_policy, "currentColor"],
    rloo: [on_policy, "#7a5195"],
    ppo: [clip(0.2, 0.2), "#d62728"],
    reinforce_pp: [clip(0.2, 0.2), "#ff9896"],
    grpo: [clip(0.2, 0.2), "#1f77b4"],
    dr_grpo: [clip(0.2, 0.2), "#17becf"],
    dapo: [clip(0.2, 0.28), "#2ca02c"],
    gspo: [clip(3e-4, 4e-4), "#ff7f0e"],
    gspo_token: [clip(3e-4, 4e-4), "#ffbb78"],
    gmpo: [clip(1 - Math.exp(-0.4), Math.exp(0.4) - 1), "#bcbd22"],
    cispo: [(w, A) => Math.min(w, 5) * A, "#8c564b"],
    sapo: [(w, A) => fade(A > 0 ? 1 : 1.05, w) * A, "#e377c2"],
    kimi_k2: [(w, A) => A - 0.1 * Math.log(w), "#9467bd"],
    reinforce_pp_baseline: [clip(0.2, 0.2), "#e7969c"],
    icepop: [clip(0.2, 0.28), "#6baed6"],
    deepseek_v32: [clip(0.2, 0.2), "#08519c"],
    dppo: [(w, A) => w * A - 0.002 * Math.log(w), "#843c39"],
    scalerl: [(w, A) => Math.min(w, 5) * A, "#c49c94"],
  },
  weight: (row, w, A) => maths.rows[row][0](w, A),

  say: (x) => (Object.is(x, -0) ? 0 : x).toFixed(2).replace("-", "\u2212"),

  // What happens to the token, in words.
  words: (row, w, A) => {
    const weight = maths.weight(row, w, A), size = Math.abs(weight / A);
    const facts = `${row}: weight ${maths.say(weight)}. `;
    if (weight === 0) return facts + (A > 0 ? "It has been helped enough." : "It has been pushed down enough.");
    if (Math.abs(size - 1) < 0.005) return facts + "As at ratio 1.";
    const wrongWay = A > 0 ? w < 1 : w > 1;
    return facts + `${maths.say(size)} times as at ratio 1` + (wrongWay ? ", though it has moved the wrong way." : ".");
  },
};

const STYLE = `
.gate-gallery { color: var(--jp-ui-font-color1, inherit); font-size: 0.9rem; line-height: 1.4; max-width: 46rem; }
.gate-gallery .controls { display: flex; flex-wrap: wrap; gap: 0.5rem 1rem; align-items: center; margin-bottom: 0.4rem; }
.gate-gallery select { font: inherit; color: inherit; background: transparent; border: 1px solid currentColor;
  border-radius: 0.3rem; padding: 0.15rem 0.4rem; min-height: 1.75rem; }
.gate-gallery option { color: CanvasText; background: Canvas; }
.gate-gallery :is(select, input):focus-visible { outline: 3px solid #3b8fcf; outline-offset: 2px; }
.gate-gallery label { display: inline-flex; gap: 0.4rem; align-items: center; }
.gate-gallery label.wide { flex: 1 1 100%; }
.gate-gallery input[type=range] { flex: 1; min-width: 0; margin: 0; accent-color: #3b8fcf; }
.gate-gallery output { font-variant-numeric: tabular-nums; white-space: nowrap; min-width: 6ch; }
.gate-gallery svg { display: block; width: 100%; height: auto; overflow: hidden; }
.gate-gallery svg text { fill: currentColor; font-size: 13px; }
.gate-gallery .axis { stroke: currentColor; stroke-opacity: 0.35; }
.gate-gallery .here { stroke: currentColor; stroke-dasharray: 3 3; }
.gate-gallery .curve { fill: none; stroke-width: 2.5; }
.gate-gallery .second { stroke-dasharray: 8 5; }
@media (max-width: 480px) { .gate-gallery svg text { font-size: 20px; } }
.gate-gallery .said { margin: 0.4rem 0 0; min-height: 3em; }
`;

const WIDTH = 640, HEIGHT = 300, EDGE = 34;
const SVG = "http://www.w3.org/2000/svg";
const across = (log2) => EDGE + ((log2 + LIMIT) / (2 * LIMIT)) * (WIDTH - EDGE - 8);
const down = (weight) => HEIGHT / 2 - (weight / REACH) * (HEIGHT / 2 - 18);

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function picture(tag, attributes, text = "") {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}

// A step is drawn as a step: many points, and the weight beyond the axis is cut at its end.
function curve(row, A, second) {
  const points = [];
  for (let i = 0; i <= 1200; i++) {
    const log2 = -LIMIT + (i / 1200) * 2 * LIMIT;
    const weight = Math.max(-REACH, Math.min(REACH, maths.weight(row, 2 ** log2, A)));
    points.push(`${across(log2).toFixed(1)},${down(weight).toFixed(1)}`);
  }
  const kind = second ? "curve second" : "curve first";
  return picture("polyline", { class: kind, points: points.join(" "), stroke: maths.rows[row][1] });
}

function render({ model, el }) {
  const read = (name, otherwise) => model.get(name) ?? otherwise;
  const write = (name, value) => { model.set(name, value); model.save_changes(); };
  const first = () => read("first", "grpo"), second = () => read("second", "sapo");
  const sign = () => read("sign", 1), log2 = () => read("log2", 0.3);

  const choice = (name, label, options, cast) => {
    const select = element("select", { className: name });
    for (const [value, text] of options) select.append(element("option", { value, textContent: text }));
    select.addEventListener("change", () => write(name, cast(select.value)));
    return [element("label", {}, label, select), select];
  };
  const names = Object.keys(maths.rows).map((name) => [name, name]);
  const [firstLabel, firstSelect] = choice("first", "row", names, String);
  const [secondLabel, secondSelect] = choice("second", "beside", names, String);
  const [signLabel, signSelect] = choice("sign", "token", [[1, "good, A = +1"], [-1, "bad, A = \u22121"]], Number);
  const slider = element("input", { type: "range", min: -LIMIT, max: LIMIT, step: 0.01, className: "ratio" });
  slider.addEventListener("input", () => write("log2", Number(slider.value)));
  const shown = element("output");
  const svg = picture("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
  const said = element("p", { className: "said" });
  said.setAttribute("role", "status");
  const root = element("div", { className: "gate-gallery" },
    element("style", { textContent: STYLE }),
    element("div", { className: "controls" }, firstLabel, secondLabel, signLabel,
      element("label", { className: "wide" }, "ratio ", slider, shown)),
    svg, said);
  root.setAttribute("role", "group");
  root.setAttribute("aria-label", read("alt", "The weight of a token's score over the ratio, for two rows."));

  const draw = () => {
    const w = 2 ** log2(), A = sign(), rows = [first(), second()];
    firstSelect.value = rows[0];
    secondSelect.value = rows[1];
    signSelect.value = String(A);
    slider.value = log2();
    slider.setAttribute("aria-valuetext", `ratio ${w.toFixed(2)}`);
    shown.textContent = w.toFixed(3);
    svg.replaceChildren();
    for (const weight of [-4, -2, 0, 2, 4]) {
      svg.append(
        picture("line", { class: "axis", x1: EDGE, x2: WIDTH - 8, y1: down(weight), y2: down(weight) }),
        picture("text", { x: EDGE - 6, y: down(weight) + 4, "text-anchor": "end" }, String(weight).replace("-", "\u2212")));
    }
    for (const [at, text] of [[-3, "1/8"], [-2, "1/4"], [-1, "1/2"], [0, "1"], [1, "2"], [2, "4"], [3, "8"]]) {
      svg.append(
        picture("line", { class: "axis", x1: across(at), x2: across(at), y1: 10, y2: HEIGHT - 20 }),
        picture("text", { x: Math.min(across(at), WIDTH - 14), y: HEIGHT - 4, "text-anchor": "middle" }, text));
    }
    svg.append(picture("text", { x: EDGE + 4, y: 22 }, "weight"), picture("text", { x: WIDTH - 60, y: HEIGHT - 26 }, "ratio"));
    svg.append(picture("line", { class: "here", x1: across(log2()), x2: across(log2()), y1: 10, y2: HEIGHT - 20 }));
    rows.forEach((row, i) => {
      const weight = maths.weight(row, w, A), at = Math.max(-REACH, Math.min(REACH, weight));
      svg.append(curve(row, A, i === 1));
      const y = 22 + 26 * i, kind = i === 1 ? "curve second" : "curve first";  // the legend: no curve is up here
      svg.append(
        picture("line", { class: kind, stroke: maths.rows[row][1], x1: EDGE + 80, x2: EDGE + 120, y1: y - 5, y2: y - 5 }),
        picture("text", { x: EDGE + 128, y }, row));
      svg.append(picture("circle", { cx: across(log2()), cy: down(at), r: 5, fill: maths.rows[row][1] }));
      root.dataset[i === 0 ? "first" : "second"] = String(weight);
    });
    said.replaceChildren(...rows.map((row) => element("span", { textContent: maths.words(row, w, A) + " " })));
    svg.setAttribute("aria-label", said.textContent);
  };
  for (const name of ["first", "second", "sign", "log2"]) model.on(`change:${name}`, draw);
  draw();
  el.append(root);
}

export default { render, maths };
