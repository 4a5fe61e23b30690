// The pass-rate figure: choose two rows, the size of a group and a prompt's pass rate, and see how much the prompt counts.
//
// One file for notebooks (anywidget) and for pages of the book, with nothing but the browser beneath it. Rows, weights,
// colours and dashes are given to it, as rlhf_book.figures.pass_rates tabulates them; it looks them up and draws.

import { element, figure, picture, reader, writer } from "./kit.mjs";

const LOWEST = 1 / 8, HIGHEST = 64; // of the weight's logarithmic axis

const maths = {
  // The weight of a row in groups of G at a pass rate.
  weight: ({ curves, rates }, row, G, p) => curves[row.curve][G][rates.findIndex((rate) => Math.abs(rate - p) < 1e-6)],

  // How often a group has one outcome only, and so teaches a group's mean nothing.
  dead: (G, p) => p ** G + (1 - p) ** G,

  say: (x) => (x === 0 ? "0" : x < 0.001 ? "under 0.001" : x < 10 ? x.toPrecision(3) : x.toFixed(1)),

  // What it comes to, in words: beside a prompt that is right every other time.
  words: (table, row, G, p) => {
    const here = maths.weight(table, row, G, p), half = maths.weight(table, row, G, 0.5);
    const facts = `${row.name}: weight ${maths.say(here)}`;
    const times = here / half;
    if (Math.abs(times - 1) < 0.005) return `${facts}, the same as at p = 0.5.`;
    return `${facts}, ${maths.say(times)} times that at p = 0.5.`;
  },
};

const STYLE = `
.pass-rates .controls { display: flex; flex-wrap: wrap; gap: 0.5rem 1rem; align-items: center; margin-bottom: 0.4rem; }
.pass-rates select { font: inherit; color: inherit; background: transparent; border: 1px solid currentColor;
  border-radius: 0.3rem; padding: 0.15rem 0.4rem; min-height: 1.75rem; }
.pass-rates label.wide { flex: 1 1 100%; }
.pass-rates input[type=range] { flex: 1; min-width: 0; margin: 0; accent-color: #3b8fcf; }
.pass-rates output { font-variant-numeric: tabular-nums; white-space: nowrap; min-width: 4ch; }
.pass-rates svg { display: block; width: 100%; height: auto; overflow: hidden; }
.pass-rates svg text { fill: currentColor; font-size: 13px; }
.pass-rates .axis { stroke: currentColor; stroke-opacity: 0.35; }
.pass-rates .here { stroke: currentColor; stroke-dasharray: 3 3; }
.pass-rates .curve { fill: none; stroke-width: 2.5; }
.pass-rates .first { stroke-width: 7; stroke-opacity: 0.4; }
@media (max-width: 480px) { .pass-rates svg text { font-size: 20px; } }
.pass-rates .said { margin: 0.4rem 0 0; min-height: 4.2em; }
`;

const WIDTH = 640, HEIGHT = 300, EDGE = 44, TOP = 12, FOOT = 24;
const cut = (weight) => Math.max(LOWEST, Math.min(HIGHEST, weight));
const down = (weight) => TOP + (Math.log2(HIGHEST / cut(weight)) / Math.log2(HIGHEST / LOWEST)) * (HEIGHT - TOP - FOOT);
const across = (p) => EDGE + p * (WIDTH - EDGE - 8);

function render({ model, el }) {
  const read = reader(model);
  const write = writer(model);
  const table = { curves: read("curves", []), rates: read("rates", []) };
  const rows = read("rows", []), sizes = read("sizes", []);
  const named = (name, otherwise) => rows.find((row) => row.name === name) ?? rows[otherwise];
  const first = () => named(read("first"), 0), second = () => named(read("second"), rows.length - 1);
  const size = () => read("size", sizes[0]), rate = () => read("rate", 0.5);

  const line = (row, i) => ({
    class: i === 0 ? "curve first" : "curve second",  // wide and pale below, narrow above: equal curves are both seen
    stroke: row.color,
    "stroke-dasharray": row.dashes.map((points) => 1.6 * points).join(" ") || "none",
  });
  const curve = (row, i) => {
    const shown = table.curves[row.curve][size()].map((weight, at) => [table.rates[at], weight]);
    const last = shown.findIndex(([, weight]) => weight < LOWEST); // a curve that leaves the axis below ends there
    const points = (last < 0 ? shown : shown.slice(0, last + 1)).map(([p, weight]) => `${across(p).toFixed(1)},${down(weight).toFixed(1)}`);
    return picture("polyline", { ...line(row, i), points: points.join(" ") });
  };

  const choice = (name, label, options, cast) => {
    const select = element("select", { className: name });
    for (const [value, text] of options) select.append(element("option", { value, textContent: text }));
    select.addEventListener("change", () => write({ [name]: cast(select.value) }));
    return [element("label", {}, label, select), select];
  };
  const names = rows.map(({ name }) => [name, name]);
  const [firstLabel, firstSelect] = choice("first", "row", names, String);
  const [secondLabel, secondSelect] = choice("second", "beside", names, String);
  const [sizeLabel, sizeSelect] = choice("size", "completions a prompt", sizes.map((G) => [G, G]), Number);
  const slider = element("input", { type: "range", min: table.rates[0], max: table.rates.at(-1), step: 0.01, className: "rate" });
  slider.addEventListener("input", () => write({ rate: Number(slider.value) }));
  const shown = element("output");
  const svg = picture("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
  const said = element("p", { className: "said", role: "status" });
  const root = figure(model, "pass-rates", STYLE);
  root.append(
    element("div", { className: "controls" }, firstLabel, secondLabel, sizeLabel,
      element("label", { className: "wide" }, "pass rate p ", slider, shown)),
    svg, said);

  const draw = () => {
    const p = rate(), G = size(), chosen = [first(), second()];
    firstSelect.value = chosen[0].name;
    secondSelect.value = chosen[1].name;
    sizeSelect.value = String(G);
    slider.value = p;
    slider.setAttribute("aria-valuetext", `pass rate ${p.toFixed(2)}`);
    shown.textContent = p.toFixed(2);
    svg.replaceChildren();
    for (const [weight, text] of [[64, "64"], [16, "16"], [4, "4"], [1, "1"], [1 / 4, "1/4"]]) {
      svg.append(
        picture("line", { class: "axis", x1: EDGE, x2: WIDTH - 8, y1: down(weight), y2: down(weight) }),
        picture("text", { x: EDGE - 6, y: down(weight) + 4, "text-anchor": "end" }, text));
    }
    for (const at of [0, 0.25, 0.5, 0.75, 1]) {
      svg.append(
        picture("line", { class: "axis", x1: across(at), x2: across(at), y1: TOP, y2: HEIGHT - FOOT }),
        picture("text", { x: Math.min(across(at), WIDTH - 14), y: HEIGHT - 5, "text-anchor": "middle" }, String(at)));
    }
    svg.append(picture("line", { class: "here", x1: across(p), x2: across(p), y1: TOP, y2: HEIGHT - FOOT }));
    svg.append(picture("text", { x: WIDTH - 12, y: HEIGHT - FOOT - 6, "text-anchor": "end" }, "pass rate p"));
    chosen.forEach((row, i) => {
      const weight = maths.weight(table, row, G, p), y = TOP + 18 + 26 * i;
      svg.append(
        curve(row, i),
        picture("line", { ...line(row, i), x1: WIDTH / 2, x2: WIDTH / 2 + 44, y1: y - 5, y2: y - 5 }),
        picture("text", { x: WIDTH / 2 + 52, y }, row.name),
        picture("circle", { cx: across(p), cy: down(weight), r: 5, fill: row.color }));
      root.dataset[i === 0 ? "first" : "second"] = String(weight);
    });
    said.replaceChildren(
      ...chosen.map((row) => element("span", { textContent: maths.words(table, row, G, p) + " " })),
      element("span", { textContent: `Groups with one outcome only: ${(100 * maths.dead(G, p)).toFixed(0)} %.` }));
    svg.setAttribute("aria-label", said.textContent);
  };
  for (const name of ["first", "second", "size", "rate"]) model.on(`change:${name}`, draw);
  draw();
  el.append(root);
}

export default { render, maths };
