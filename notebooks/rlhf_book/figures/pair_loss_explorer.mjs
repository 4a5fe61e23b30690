// The pair-loss explorer: what the rows of the second table make of one gap between a chosen and a rejected completion.
//
// One file for notebooks (anywidget) and for pages of the book, with nothing but the browser beneath it. What it
// computes is in `maths`, which the tests hold to the library's losses and to autograd.

import { buttons, element, figure, picture, writer } from "./kit.mjs";

const maths = {
  ranges: {
    gap: { min: -8, max: 8, step: 0.1 },
    beta: { min: 0.05, max: 1, step: 0.05 },
    wins: { min: 0.5, max: 1, step: 0.05 },
  },
  rows: ["bradley_terry", "dpo", "ipo", "spin"],

  examples: {
    "the first step of DPO": { gap: 0, beta: 0.1, wins: 1 },
    "ranked wrongly": { gap: -4, beta: 0.5, wins: 1 },
    "far apart": { gap: 7, beta: 0.5, wins: 1 },
    "one label in four is flipped": { gap: 1.1, beta: 1, wins: 0.75 },
  },

  softplus: (x) => (x > 0 ? x : 0) + Math.log1p(Math.exp(-Math.abs(x))), // -log sigmoid(-x)
  sigmoid: (x) => 1 / (1 + Math.exp(-x)),

  // A row's loss of a gap and its pull, which is minus the slope: how strongly a step widens the gap.
  scale: (row, beta) => (row === "bradley_terry" ? 1 : beta),
  loss: (row, gap, beta) =>
    row === "ipo" ? (gap - 1 / (2 * beta)) ** 2 : maths.softplus(-maths.scale(row, beta) * gap),
  pull: (row, gap, beta) => {
    if (row === "ipo") return 2 * (1 / (2 * beta) - gap);
    const by = maths.scale(row, beta);
    return by * maths.sigmoid(-by * gap);
  },
  // Means over comparisons of which a share `wins` agrees with the label; the others have the opposite gap.
  meanLoss: (row, gap, beta, wins) =>
    wins * maths.loss(row, gap, beta) + (1 - wins) * maths.loss(row, -gap, beta),
  meanPull: (row, gap, beta, wins) =>
    wins * maths.pull(row, gap, beta) - (1 - wins) * maths.pull(row, -gap, beta),
  // The gap at which the mean pull is 0; null where there is none.
  rest: (row, beta, wins) => {
    if (row === "ipo") return (2 * wins - 1) / (2 * beta);
    return wins >= 1 ? null : Math.log(wins / (1 - wins)) / maths.scale(row, beta);
  },

  compute: ({ gap, beta, wins }) => maths.rows.map((name) => ({
    name,
    loss: maths.meanLoss(name, gap, beta, wins),
    pull: maths.meanPull(name, gap, beta, wins),
    relative: maths.meanPull(name, gap, beta, wins) / maths.pull(name, 0, beta),
    rest: maths.rest(name, beta, wins),
  })),

  say: (x, digits = 2) => {
    const shown = Math.abs(x).toFixed(digits);
    return (x < 0 && Number(shown) !== 0 ? "\u2212" : "") + shown;
  },
  sayRest: (rest) => (rest === null ? "never" : maths.say(rest)),

  words: (state) => {
    const found = Object.fromEntries(maths.compute(state).map((row) => [row.name, row])), { say } = maths;
    const does = (row) => {
      if (Math.abs(row.relative) < 5e-3) return row.rest === null ? "hardly pulls any more" : "stands still";
      return row.pull > 0 ? "widens it" : "narrows it";
    };
    const ends = (row) => (row.rest === null ? "it never rests" : `it rests at ${say(row.rest)}`);
    return `The gap is ${say(state.gap, 1)}. Bradley-Terry ${does(found.bradley_terry)}; ${ends(found.bradley_terry)}. ` +
      `DPO and SPIN: ${does(found.dpo)}; ${ends(found.dpo)}. IPO ${does(found.ipo)}; ${ends(found.ipo)}.`;
  },
};

const STYLE = `
.pair-loss-explorer .examples { display: flex; flex-wrap: wrap; gap: 0.3rem; margin-bottom: 0.6rem; }
.pair-loss-explorer .slide { display: grid; grid-template-columns: minmax(8rem, 2fr) 4fr 3.4rem; gap: 0.5rem; align-items: center; }
.pair-loss-explorer output { font-variant-numeric: tabular-nums; text-align: end; }
.pair-loss-explorer svg { display: block; width: 100%; height: 11rem; margin: 0.4rem 0; }
.pair-loss-explorer svg .axis { stroke: currentColor; stroke-opacity: 0.45; }
.pair-loss-explorer svg .now { stroke: currentColor; stroke-dasharray: 4 3; }
.pair-loss-explorer svg path { fill: none; stroke-width: 2; }
.pair-loss-explorer .bradley_terry { stroke: #3b8fcf; } .pair-loss-explorer .dpo { stroke: #d9671e; stroke-dasharray: 7 4; }
.pair-loss-explorer .ipo { stroke: #2f9e6e; stroke-dasharray: 2 3; }
.pair-loss-explorer :is(th, td) { padding: 0.1rem 0.2rem; border: 0; background: none; font-weight: normal; text-align: start;
  font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.pair-loss-explorer thead th { vertical-align: bottom; font-size: 0.85em; font-weight: 600; }
.pair-loss-explorer .key { display: inline-block; width: 2.2rem; height: 0.6rem; vertical-align: middle; margin: 0; }
.pair-loss-explorer .note { margin: 0; font-size: 0.85em; }
.pair-loss-explorer .said { margin: 0.6rem 0 0; min-height: 4.2em; }
@media (max-width: 480px) { .pair-loss-explorer { font-size: 0.78rem; } .pair-loss-explorer .said { min-height: 7em; }
  .pair-loss-explorer .key { width: 1.3rem; } }
`;

const START = { gap: 0, beta: 0.5, wins: 1 };
const LABELS = {
  gap: "gap, chosen minus rejected",
  beta: "beta",
  wins: "share of labels that agree",
};
const NAMES = { bradley_terry: "Bradley-Terry", dpo: "DPO", ipo: "IPO", spin: "SPIN" };
const TOP = 3; // of the picture: pulls are shown from -TOP to TOP times the first one

// The pull of each loss over the gap, in units of its pull on a gap of 0 with certain labels.
function curves(state) {
  const { min, max } = maths.ranges.gap;
  const x = (gap) => ((gap - min) / (max - min)) * 320;
  const y = (relative) => 80 - (Math.max(-TOP, Math.min(TOP, relative)) / TOP) * 76;
  const svg = picture("svg", { viewBox: "0 0 320 160", preserveAspectRatio: "none", role: "img" });
  const fixed = { "vector-effect": "non-scaling-stroke" };
  svg.setAttribute("aria-label", `pull over the gap from ${min} to ${max}: ` + maths.compute(state)
    .map((row) => `${NAMES[row.name]} ${maths.say(row.relative)} of its first pull`).join(", "));
  svg.append(picture("line", { x1: 0, x2: 320, y1: y(0), y2: y(0), class: "axis", ...fixed }));
  svg.append(picture("line", { x1: x(0), x2: x(0), y1: 0, y2: 160, class: "axis", ...fixed }));
  for (const name of ["bradley_terry", "dpo", "ipo"]) {
    const points = [];
    for (let gap = min; gap <= max + 1e-9; gap += 0.1) {
      const relative = maths.meanPull(name, gap, state.beta, state.wins) / maths.pull(name, 0, state.beta);
      points.push(`${x(gap).toFixed(2)},${y(relative).toFixed(2)}`);
    }
    svg.append(picture("path", { d: `M${points.join("L")}`, class: name, ...fixed }));
  }
  svg.append(picture("line", { x1: x(state.gap), x2: x(state.gap), y1: 0, y2: 160, class: "now", ...fixed }));
  return svg;
}

function key(name) {
  const svg = picture("svg", { viewBox: "0 0 40 8", class: "key", preserveAspectRatio: "none", "aria-hidden": "true" });
  svg.append(picture("path", { d: "M0,4L40,4", class: name === "spin" ? "dpo" : name, "vector-effect": "non-scaling-stroke" }));
  return svg;
}

function render({ model, el }) {
  const state = () => Object.fromEntries(Object.keys(START).map((name) => [name, model.get(name) ?? START[name]]));
  const write = writer(model);
  const root = figure(model, "pair-loss-explorer", STYLE);
  const examples = buttons(maths.examples, write, (chosen) => ({ ...chosen }));
  const sliders = {}, controls = element("div", { className: "controls" });
  for (const name of Object.keys(START)) {
    const slider = element("input", { type: "range", ...maths.ranges[name], className: `${name}-slider` });
    slider.setAttribute("aria-label", LABELS[name]);
    slider.addEventListener("input", () => write({ [name]: Number(slider.value) }));
    const output = element("output");
    sliders[name] = { slider, output };
    controls.append(element("div", { className: "slide" }, element("span", { textContent: LABELS[name] }), slider, output));
  }
  const plot = element("div");
  const head = element("tr");
  for (const text of ["row", "mean loss", "mean pull on the gap", "of its first pull", "rests at"]) {
    head.append(element("th", { textContent: text, scope: "col" }));
  }
  const results = element("tbody", { className: "results" });
  const note = element("p", {
    className: "note",
    textContent: "Across: the gap. Up: the pull, in units of the row's pull on a gap of 0; the line in the middle is 0.",
  });
  const said = element("p", { className: "said", role: "status" });
  root.append(examples, controls, plot, note,
    element("table", {}, element("thead", {}, head), results), said);

  const draw = () => {
    const now = state();
    for (const [name, { slider, output }] of Object.entries(sliders)) {
      slider.value = now[name];
      output.textContent = maths.say(now[name], name === "gap" ? 1 : 2);
    }
    plot.replaceChildren(curves(now));
    results.replaceChildren(...maths.compute(now).map((row) => element("tr", {},
      element("th", { scope: "row" }, key(row.name), ` ${NAMES[row.name]}`),
      ...[maths.say(row.loss), maths.say(row.pull), maths.say(row.relative), maths.sayRest(row.rest)]
        .map((textContent) => element("td", { textContent })))));
    said.textContent = maths.words(now);
  };
  for (const name of Object.keys(START)) model.on(`change:${name}`, draw);
  draw();
  el.append(root);
}

export default { render, maths };
