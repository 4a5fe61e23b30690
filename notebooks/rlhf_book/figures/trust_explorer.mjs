// The trust explorer: a token's probability when it was sampled and now; for each row of the table, with what weight and
// sign it still trains on that token.
//
// One file for notebooks (anywidget) and for pages of the book, with nothing but the browser beneath it. It holds no row
// and no formula: every weight comes tabulated from Python, rlhf_book/figures/trust.py, which the tests hold to autograd.

import { element, figure, picture, reader, writer } from "./kit.mjs";

const maths = {
  old: { sampler: "the sampler's", own: "the trainer's own, read anew" },
  signs: { "1": "a good completion, A = 1", "-1": "a bad completion, A = \u22121" },

  // Sampled at, now at, sign: as near as the table's lattice allows.
  examples: {
    "fresh": [0.119, 0.119, 1], "good, gained": [0.119, 0.25, 1], "good, lost": [0.119, 0.05, 1],
    "bad, lost": [0.119, 0.05, -1], "bad, gained": [0.119, 0.35, -1], "rare, tripled": [0.001, 0.003, 1],
    "likely, up by a fifth": [0.73, 0.89, 1],
  },

  nearest: (numbers, p) => {
    const apart = numbers.map((x) => Math.abs(Math.log(x / (1 - x)) - Math.log(p / (1 - p))));
    return apart.indexOf(Math.min(...apart));
  },

  // The weight of each row, in the table's order.
  weights: (table, now, sampled, old, sign) =>
    table.rows.map(({ name }) => table.curves[table.curve[`${old}/${sign}/${name}`]][sampled][now]),

  say: (x, digits = 2) => {
    const shown = Math.abs(x).toFixed(digits);
    return (x < 0 && Number(shown) !== 0 ? "\u2212" : "") + shown;
  },
  probability: (p) => (p < 0.001 ? p.toFixed(5) : p < 0.01 ? p.toFixed(4) : p.toFixed(3)),

  // What a row does, in a word. A weight that rounds to 0 is not yet a token that is left out.
  verdict: (weight) => (weight === 0 ? "left out" : Math.abs(weight) < 0.005 ? "nearly silent" : weight > 0 ? "pushed up" : "pushed down"),

  words: (table, now, sampled, old, sign) => {
    const found = maths.weights(table, now, sampled, old, sign), { say, probability } = maths;
    const ratio = table.now[now] / table.sampled[sampled];
    const from = `Sampled at ${probability(table.sampled[sampled])}, now ${probability(table.now[now])}: ratio ` +
      `${say(ratio, ratio < 0.1 ? 3 : 2)}, ${say(table.now[now] - table.sampled[sampled], 3)} of probability.`;
    const out = table.rows.filter((_, i) => found[i] === 0).map((row) => row.name);
    const sizes = found.map(Math.abs), largest = Math.max(...sizes);
    const most = table.rows.filter((_, i) => sizes[i] === largest).map((row) => row.name);
    const who = out.length === 0 ? `All ${found.length} rows train on it`
      : out.length === found.length ? "No row trains on it" : `${found.length - out.length} of ${found.length} rows train on it; ` +
        `left out by ${out.join(", ")}`;
    const strongest = largest === 0 || Math.min(...sizes) === largest ? (largest === 0 ? "." : `, all with weight ${say(found[0])}.`)
      : `. The largest weight, ${say(sign * largest)}, is that of ${most.length > 3 ? `${most.length} rows` : most.join(", ")}.`;
    return `${from} ${who}${strongest}`;
  },
};

const STYLE = `
.trust-explorer .examples, .trust-explorer .menus { display: flex; flex-wrap: wrap; gap: 0.3rem 0.8rem; margin-bottom: 0.5rem; }
.trust-explorer .examples { gap: 0.3rem; }
.trust-explorer label { display: inline-flex; flex-wrap: wrap; gap: 0.1rem 0.4rem; align-items: center; }
.trust-explorer .sliders label { display: grid; grid-template-columns: 8.5em 1fr 4.4em; gap: 0.4rem; margin-bottom: 0.3rem; }
.trust-explorer output, .trust-explorer .number { font-variant-numeric: tabular-nums; white-space: nowrap; text-align: end; }
.trust-explorer thead th { font-size: 0.85em; font-weight: 600; vertical-align: bottom; }
.trust-explorer tbody th { overflow-wrap: anywhere; }
.trust-explorer .method { width: 7.5rem; } .trust-explorer .weight { width: 3.4rem; text-align: end; }
.trust-explorer .verdict { width: 6.4rem; padding-inline-start: 0.6rem; }
.trust-explorer svg { display: block; width: 100%; height: 1.2rem; }
.trust-explorer svg line { stroke: currentColor; stroke-opacity: 0.5; }
.trust-explorer .out { opacity: 0.75; }
.trust-explorer .said { margin: 0.6rem 0 0; min-height: 7em; }
@media (max-width: 560px) { .trust-explorer { font-size: 0.78rem; } .trust-explorer .what { display: none; }
  .trust-explorer .method { width: 6rem; } .trust-explorer .said { min-height: 9.8em; }
  .trust-explorer .sliders label { grid-template-columns: 7em 1fr 4em; } }
`;

const WIDEST = 5; // a longer bar is cut here, its number is not

function bar(weight, label) {
  const length = (100 * Math.min(Math.abs(weight), WIDEST)) / WIDEST;
  return picture("svg", { viewBox: "-100 0 200 20", preserveAspectRatio: "none", role: "img", "aria-label": label },
    picture("rect", { x: weight < 0 ? -length : 0, y: 3, width: length, height: 14, class: weight < 0 ? "down" : "up" }),
    picture("line", { x1: 0, x2: 0, y1: 0, y2: 20, "vector-effect": "non-scaling-stroke" }));
}

function render({ model, el }) {
  const table = model.get("table");
  const read = reader(model);
  const write = writer(model);
  const start = { now: maths.nearest(table.now, 0.25), sampled: maths.nearest(table.sampled, 0.119), old: "sampler", sign: 1 };
  const state = () => ["now", "sampled", "old", "sign"].map((name) => read(name, start[name]));

  const root = figure(model, "trust-explorer", STYLE);
  const examples = element("div", { className: "examples", role: "group" });
  examples.setAttribute("aria-label", "examples");
  for (const [name, [sampled, now, sign]] of Object.entries(maths.examples)) {
    const button = element("button", { type: "button", textContent: name });
    button.addEventListener("click", () =>
      write({ sampled: maths.nearest(table.sampled, sampled), now: maths.nearest(table.now, now), sign }));
    examples.append(button);
  }
  const menu = (name, text, choices, convert) => {
    const select = element("select", { className: name });
    for (const [value, label] of Object.entries(choices)) select.append(element("option", { value, textContent: label }));
    select.addEventListener("change", () => write({ [name]: convert(select.value) }));
    return [select, element("label", {}, text, select)];
  };
  const [sign, signLabel] = menu("sign", "from", { "1": maths.signs["1"], "-1": maths.signs["-1"] }, Number);
  const [old, oldLabel] = menu("old", "old log-probs:", maths.old, String);
  const sliders = element("div", { className: "sliders" }), shown = {};
  for (const [name, text] of [["sampled", "sampled at (\u03bc)"], ["now", "now (\u03c0)"]]) {
    const slider = element("input", { type: "range", min: 0, max: table[name].length - 1, step: 1, className: `${name}-slider` });
    slider.addEventListener("input", () => write({ [name]: Number(slider.value) }));
    const output = element("output");
    shown[name] = { slider, output };
    sliders.append(element("label", {}, text, slider, output));
  }
  const head = element("tr");
  for (const [text, className] of [["row", "method"], ["what decides", "what"], ["weight, cut at 5", "bar"], ["", "weight"], ["the token is", "verdict"]]) {
    head.append(element("th", { textContent: text, scope: "col", className }));
  }
  head.children[3].setAttribute("aria-label", "weight as a number");
  const body = element("tbody", { className: "rows" });
  const lines = table.rows.map(({ name, what }) => {
    const cells = { bar: element("td"), weight: element("td", { className: "number" }), verdict: element("td", { className: "verdict" }) };
    const line = element("tr", {}, element("th", { textContent: name, scope: "row" }), element("td", { textContent: what, className: "what" }),
      cells.bar, cells.weight, cells.verdict);
    body.append(line);
    return { line, name, ...cells };
  });
  const said = element("p", { className: "said", role: "status" });
  root.append(examples, element("div", { className: "menus" }, signLabel, oldLabel), sliders,
    element("table", {}, element("thead", {}, head), body), said);

  const draw = () => {
    const now = state();
    for (const name of ["sampled", "now"]) {
      const index = now[name === "now" ? 0 : 1], text = maths.probability(table[name][index]);
      shown[name].slider.value = index;
      shown[name].slider.setAttribute("aria-valuetext", text);
      shown[name].output.textContent = text;
    }
    old.value = now[2];
    sign.value = String(now[3]);
    maths.weights(table, ...now).forEach((weight, i) => {
      const { line, name, bar: place, weight: number, verdict } = lines[i];
      place.replaceChildren(bar(weight, `${name}: ${maths.say(weight)}`));
      number.textContent = maths.say(weight);
      verdict.textContent = maths.verdict(weight);
      line.className = weight === 0 ? "out" : "";
    });
    said.textContent = maths.words(table, ...now);
  };
  for (const name of ["now", "sampled", "old", "sign"]) model.on(`change:${name}`, draw);
  draw();
  el.append(root);
}

export default { render, maths };
