// The routing explorer: a stack of layers with experts, an engine's noise, and what arrives in the log-ratio of a token;
// beside it the same with the old choice replayed, and a dense stack with the same noise.
//
// One file for notebooks (anywidget) and for pages of the book, with nothing but the browser beneath it. It computes no
// model: every number is of the table that `rlhf_book.figures.routing` gives it.

import { element, figure, picture, writer } from "./kit.mjs";

const maths = {
  shows: [["experts", "experts"], ["replay", "experts, replay"], ["dense", "dense control"]],

  key: (layers, experts, picked) => `${layers}/${experts}/${picked}`,

  // The entry of one setting, and by how much each spread exceeds the dense one.
  compute: (data, layers, experts, picked, noise) => {
    const entry = data.table[maths.key(layers, experts, picked)][data.noises.indexOf(noise)];
    return { ...entry, wider: entry.experts / entry.dense, left: entry.replay / entry.dense };
  },

  say: (x) => (x === 0 ? "0" : x >= 0.1 ? x.toFixed(2) : x.toPrecision(2)),
  percent: (x) => `${(100 * x).toFixed(x > 0 && x < 0.1 ? 1 : 0)} %`,

  words: (data, ...setting) => {
    const found = maths.compute(data, ...setting), { say, percent } = maths;
    const flips = found.any === 0
      ? "No token changes an expert."
      : `${percent(found.any)} of the tokens change an expert in at least one layer (${percent(found.flips)} in a layer on ` +
        `average; layers independent of each other would give ${percent(found.independent)}).`;
    return `${flips} The token log-ratio spreads ${say(found.wider)} times as wide as in the dense control, and with replay ` +
      `${say(found.left)} times. The mean over 16 tokens: ${say(found.experts_mean)} with experts, ` +
      `${say(found.replay_mean)} with replay, ${say(found.dense_mean)} dense.`;
  },
};

const STYLE = `
.routing select { font: inherit; color: inherit; background: transparent; padding: 0.15rem 0.4rem; min-height: 1.75rem;
  border: 1px solid currentColor; border-radius: 0.3rem; cursor: pointer; }
.routing input { min-width: 0; width: 9rem; margin: 0; accent-color: #3b8fcf; }
.routing output { font-variant-numeric: tabular-nums; min-width: 5ch; }
.routing svg { display: block; width: 100%; height: auto; }
.routing svg text { fill: currentColor; font-size: 13px; }
.routing svg .axis { stroke: currentColor; stroke-opacity: 0.35; }
.routing .experts { fill: #0072b2; } .routing .replay { fill: #3b8fcf; fill-opacity: 0.65; }
.routing .dense { fill: currentColor; fill-opacity: 0.55; }
@media (max-width: 480px) { .routing { font-size: 0.8rem; } .routing .said { min-height: 9.8em; }
  .routing svg text { font-size: 20px; } }
`;

// Horizontal bars on a logarithmic axis from 0.0001 to 3 nats.
const place = (x) => 150 + (390 * (Math.log10(Math.max(x, 1e-4)) + 4)) / (Math.log10(3) + 4);

function bars(svg, found) {
  svg.replaceChildren();
  for (const tick of [0.0001, 0.001, 0.01, 0.1, 1]) {
    svg.append(picture("line", { x1: place(tick), x2: place(tick), y1: 4, y2: 116, class: "axis" }));
    svg.append(picture("text", { x: place(tick), y: 136, "text-anchor": "middle" }, String(tick)));
  }
  maths.shows.forEach(([name, title], row) => {
    const y = 10 + 36 * row, end = place(found[name]);
    svg.append(picture("text", { x: 142, y: y + 18, "text-anchor": "end" }, title));
    svg.append(picture("rect", { x: 150, y, width: Math.max(1, end - 150), height: 26, class: name }));
    svg.append(picture("text", { x: end + 6, y: y + 18 }, maths.say(found[name])));
  });
  svg.append(picture("text", { x: 345, y: 158, "text-anchor": "middle" }, "std of a token's log-ratio, nats"));
  svg.setAttribute("aria-label", maths.shows.map(([name, title]) => `${title} ${maths.say(found[name])}`).join(", "));
}

function render({ model, el }) {
  const data = model.get("data");
  const start = { layers: 12, experts: 32, picked: 2, noise: 0.001 };
  const state = () => Object.entries(start).map(([name, otherwise]) => model.get(name) ?? otherwise);
  const write = writer(model);

  const root = figure(model, "routing", STYLE);
  const controls = element("div", { className: "controls" }), menus = {};
  for (const name of ["layers", "experts", "picked"]) {
    const menu = element("select", { className: `${name}-menu` });
    for (const value of data[name]) menu.append(element("option", { value: String(value), textContent: String(value) }));
    menu.addEventListener("change", () => write({ [name]: Number(menu.value) }));
    controls.append(element("label", {}, name, menu));
    menus[name] = menu;
  }
  const slider = element("input", { type: "range", min: 0, max: data.noises.length - 1, step: 1, className: "noise-slider" });
  const output = element("output");
  slider.addEventListener("input", () => write({ noise: data.noises[Number(slider.value)] }));
  controls.append(element("label", {}, "noise", slider, output));
  const svg = picture("svg", { viewBox: "0 0 600 166", role: "img" });
  const said = element("p", { className: "said", role: "status" });
  root.append(controls, svg, said);

  const draw = () => {
    const now = state(), [layers, experts, picked, noise] = now;
    for (const [name, value] of Object.entries({ layers, experts, picked })) menus[name].value = String(value);
    slider.value = data.noises.indexOf(noise);
    slider.setAttribute("aria-valuetext", `relative noise ${noise}`);
    output.textContent = String(noise);
    bars(svg, maths.compute(data, ...now));
    said.textContent = maths.words(data, ...now);
  };
  for (const name of Object.keys(start)) model.on(`change:${name}`, draw);
  draw();
  el.append(root);
}

export default { render, maths };
