// The budget explorer: accuracy against tokens a problem, for a model before and after training, by method.
//
// One file for notebooks (anywidget) and for pages of the book, with nothing but the browser beneath it. It computes no
// accuracy: every point comes tabulated from Python, rlhf_book/figures/budget.py, from the recorded runs.

import { element, figure, picture, reader, writer } from "./kit.mjs";

const METHODS = ["pass", "majority", "best", "vote", "steps", "search", "held"];
const MODELS = ["both", "start", "trained"];
const STEPS = 33; // of the budget: from 4 tokens to 1024, a quarter of an octave each

const maths = {
  // Tokens of a place of the slider.
  tokens: (place) => 4 * 2 ** (place / 4),

  // The points of a method for a model and a set of problems; some have none.
  points: (curves, model, method, set) => curves[model]?.[method]?.[set] ?? [],

  // The last point of a curve that a budget pays for, or null.
  within: (points, tokens) => points.filter((point) => point[1] <= tokens + 1e-9).reduce(
    (last, point) => (last === null || point[1] >= last[1] ? point : last), null),

  // For each method and model what a budget buys: [method, point of the start, point of the trained].
  bought: (curves, set, tokens) => METHODS.map((method) => [method,
    ...["start", "trained"].map((model) => maths.within(maths.points(curves, model, method, set), tokens))]),

  // The best method that needs no perfect verifier, for a model.
  best: (curves, model, set, tokens) => METHODS.slice(1).map((method) =>
    [method, maths.within(maths.points(curves, model, method, set), tokens)])
    .reduce((top, one) => (one[1] !== null && (top === null || one[1][2] > top[1][2]) ? one : top), null),

  percent: (x) => `${(100 * x).toFixed(0)} %`,

  words: (curves, methods, set, place) => {
    const tokens = maths.tokens(place), said = [];
    for (const [model, name] of [["start", "The start"], ["trained", "The trained model"]]) {
      const top = maths.best(curves, model, set, tokens);
      said.push(top === null ? `${name} cannot finish one completion.` :
        `${name} is best with \u201c${methods[top[0]]}\u201d: ${maths.percent(top[1][2])} ` +
        `(${maths.percent(top[1][3])} to ${maths.percent(top[1][4])}) for ${top[1][1].toFixed(0)} tokens.`);
    }
    return `At most ${tokens.toFixed(0)} tokens a problem, ${set === "all" ? "all problems" : `problems with ${set} moves`}. ` +
      `${said.join(" ")} One of n is right needs a verifier that is never wrong, and is left out of this.`;
  },
};

const STYLE = `
.budget-explorer input[type=range] { min-width: 0; width: 9rem; margin: 0; accent-color: #3b8fcf; }
.budget-explorer output { font-variant-numeric: tabular-nums; white-space: nowrap; min-width: 3.2em; }
.budget-explorer svg { display: block; width: 100%; max-width: 40rem; }
.budget-explorer .frame { fill: none; stroke: currentColor; stroke-opacity: 0.5; }
.budget-explorer .grid { stroke: currentColor; stroke-opacity: 0.15; }
.budget-explorer .budget { stroke: currentColor; stroke-dasharray: 3 3; }
.budget-explorer text { fill: currentColor; font-size: 11px; }
.budget-explorer .line { fill: none; stroke-width: 2; } .budget-explorer .trained { stroke-dasharray: 6 3; }
.budget-explorer table { border-collapse: collapse; margin-top: 0.5rem; font-variant-numeric: tabular-nums; width: 100%; }
.budget-explorer :is(td, th) { text-align: left; padding: 0.1rem 0.4rem; border-bottom: 1px solid rgba(128, 128, 128, 0.3); font-weight: normal; }
.budget-explorer :is(td, th) + :is(td, th) { text-align: right; white-space: nowrap; }
.budget-explorer .swatch { display: inline-block; width: 0.8em; height: 0.8em; margin-right: 0.4em; vertical-align: -0.05em; }
@media (max-width: 480px) { .budget-explorer input[type=range] { width: 7.5rem; } .budget-explorer table { font-size: 0.85em; } .budget-explorer :is(td, th) { padding: 0.1rem 0.2rem; }
  .budget-explorer .said { min-height: 10em; } }
`;
const COLORS = { pass: "#8a8a8a", majority: "#3b8fcf", best: "#d9671e", vote: "#b8860b", steps: "#2e9e6b", search: "#b05fc0", held: "#d04a6a" };
const WIDTH = 560, HEIGHT = 300, LEFT = 56, BOTTOM = 34, TOP = 8, LEAST = 2, MOST = 1400;

const across = (tokens) => LEFT + (Math.log(tokens / LEAST) / Math.log(MOST / LEAST)) * (WIDTH - LEFT - 8);
const upwards = (share) => HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP);

function render({ model, el }) {
  const read = reader(model);
  const write = writer(model);
  const curves = read("curves", {}), methods = read("methods", {}), sets = read("sets", ["all"]);

  const root = figure(model, "budget-explorer", STYLE);
  const choose = (name, options, text) => {
    const select = element("select", { className: name });
    for (const value of options) select.append(element("option", { value, textContent: text(value) }));
    select.addEventListener("change", () => write({ [name]: select.value }));
    return select;
  };
  const names = { both: "both models", start: "the start", trained: "the trained model" };
  const shown = choose("shown", MODELS, (value) => names[value]);
  const set = choose("set", sets, (value) => (value === "all" ? "all" : `${value} moves`));
  const budget = element("input", { type: "range", min: 0, max: STEPS - 1, step: 1, className: "place" });
  const out = element("output");
  budget.addEventListener("input", () => write({ place: Number(budget.value) }));

  const plot = picture("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    plot.append(picture("line", { class: "grid", x1: LEFT, x2: WIDTH - 8, y1: upwards(share), y2: upwards(share) }),
      picture("text", { x: LEFT - 6, y: upwards(share) + 4, "text-anchor": "end" }, share.toFixed(2)));
  }
  for (const tokens of [4, 16, 64, 256, 1024]) {
    plot.append(picture("line", { class: "grid", x1: across(tokens), x2: across(tokens), y1: upwards(1), y2: upwards(0) }),
      picture("text", { x: across(tokens), y: HEIGHT - BOTTOM + 14, "text-anchor": "middle" }, tokens));
  }
  const lines = picture("g", {});
  plot.append(picture("text", { x: (LEFT + WIDTH) / 2, y: HEIGHT - 4, "text-anchor": "middle" }, "tokens a problem"),
    picture("text", { x: 0, y: 0, "text-anchor": "middle", transform: `translate(12 ${(HEIGHT - BOTTOM + TOP) / 2}) rotate(-90)` }, "accuracy"),
    lines, picture("rect", { class: "frame", x: LEFT, y: upwards(1), width: WIDTH - LEFT - 8, height: upwards(0) - upwards(1) }));

  const body = element("tbody");
  const said = element("p", { className: "said", role: "status" });
  root.append(
    element("div", { className: "controls" }, element("label", {}, "show ", shown), element("label", {}, "problems ", set),
      element("label", {}, "budget ", budget, out)),
    plot,
    element("p", { className: "key", textContent: "Solid: the start. Dashed: the model after training. The dotted vertical line is the budget." }),
    element("table", {}, element("thead", {}, element("tr", {}, element("th", { textContent: "within the budget" }),
      element("th", { textContent: "start" }), element("th", { textContent: "trained" }))), body),
    said,
  );

  const draw = () => {
    const which = read("shown", "both"), problems = read("set", "all"), place = read("place", 16), tokens = maths.tokens(place);
    shown.value = which;
    set.value = problems;
    budget.value = place;
    out.textContent = `${tokens.toFixed(0)} tokens`;
    const drawn = [];
    for (const kind of ["start", "trained"].filter((one) => which === "both" || which === one)) {
      for (const method of METHODS) {
        const points = [...maths.points(curves, kind, method, problems)].sort((a, b) => a[1] - b[1]);
        if (points.length === 0) continue;
        const path = points.map((point, i) => `${i ? "L" : "M"} ${across(point[1]).toFixed(1)} ${upwards(point[2]).toFixed(1)}`).join(" ");
        drawn.push(picture("path", { class: `line ${kind}`, d: path, stroke: COLORS[method] }));
        for (const point of points) {
          drawn.push(picture("circle", { cx: across(point[1]), cy: upwards(point[2]), r: 2.4, fill: COLORS[method] }));
        }
      }
    }
    drawn.push(picture("line", { class: "budget", x1: across(tokens), x2: across(tokens), y1: upwards(1), y2: upwards(0) }));
    lines.replaceChildren(...drawn);
    body.replaceChildren(...maths.bought(curves, problems, tokens).map(([method, ...points]) => element("tr", {},
      element("td", {}, element("span", { className: "swatch", style: `background: ${COLORS[method]}` }), methods[method] ?? method),
      ...points.map((point) => element("td", { textContent: point === null ? "\u2013" : `${maths.percent(point[2])} (${point[1].toFixed(0)})` })))));
    plot.setAttribute("aria-label", `accuracy from 0 to 1 against tokens a problem from 2 to 1400 on a logarithmic scale; budget ${tokens.toFixed(0)}`);
    said.textContent = maths.words(curves, methods, problems, place);
  };
  for (const name of ["shown", "set", "place"]) model.on(`change:${name}`, draw);
  draw();
  el.append(root);
}

export default { render, maths };
