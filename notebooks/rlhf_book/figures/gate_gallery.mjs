// The gate gallery: choose two rows of the table and a ratio, and see the weight that a token's score gets in each.
//
// One file for notebooks (anywidget) and for pages of the book, with nothing but the browser beneath it. Rows, weights,
// colours and dashes are given to it, as rlhf_book.figures.gates tabulates them; it looks them up and draws.

import { element, figure, picture, reader, writer } from "./kit.mjs";

const REACH = 5.5; // the weight's axis, from -REACH to REACH; a clip's open side leaves it

const maths = {
  // The weight of a row at a ratio of 2^log2, for A = 1 or -1.
  weight: ({ curves, reach, step }, row, log2, A) => curves[row.curve][A][Math.round((log2 + reach) / step)],

  say: (x) => (Object.is(x, -0) ? 0 : x).toFixed(2).replace("-", "\u2212"),

  // What happens to the token, in words.
  words: (name, weight, w, A) => {
    const size = Math.abs(weight);
    const facts = `${name}: weight ${maths.say(weight)}. `;
    if (weight === 0) return facts + (A > 0 ? "It has been helped enough." : "It has been pushed down enough.");
    if (Math.abs(size - 1) < 0.005) return facts + "As at ratio 1.";
    const wrongWay = A > 0 ? w < 1 : w > 1;
    return facts + `${maths.say(size)} times as at ratio 1` + (wrongWay ? ", though it has moved the wrong way." : ".");
  },
};

const STYLE = `
.gate-gallery .controls { display: flex; flex-wrap: wrap; gap: 0.5rem 1rem; align-items: center; margin-bottom: 0.4rem; }
.gate-gallery select { font: inherit; color: inherit; background: transparent; border: 1px solid currentColor;
  border-radius: 0.3rem; padding: 0.15rem 0.4rem; min-height: 1.75rem; }
.gate-gallery label.wide { flex: 1 1 100%; }
.gate-gallery input[type=range] { flex: 1; min-width: 0; margin: 0; accent-color: #3b8fcf; }
.gate-gallery output { font-variant-numeric: tabular-nums; white-space: nowrap; min-width: 6ch; }
.gate-gallery svg { display: block; width: 100%; height: auto; overflow: hidden; }
.gate-gallery svg text { fill: currentColor; font-size: 13px; }
.gate-gallery .axis { stroke: currentColor; stroke-opacity: 0.35; }
.gate-gallery .here { stroke: currentColor; stroke-dasharray: 3 3; }
.gate-gallery .curve { fill: none; stroke-width: 2.5; }
.gate-gallery .first { stroke-width: 7; stroke-opacity: 0.4; }
@media (max-width: 480px) { .gate-gallery svg text { font-size: 20px; } }
.gate-gallery .said { margin: 0.4rem 0 0; min-height: 3em; }
`;

const WIDTH = 640, HEIGHT = 300, EDGE = 34;
const down = (weight) => HEIGHT / 2 - (weight / REACH) * (HEIGHT / 2 - 18);

function render({ model, el }) {
  const read = reader(model);
  const write = writer(model);
  const gallery = { curves: read("curves", []), reach: read("reach", 1), step: read("step", 1) };
  const rows = read("rows", []), LIMIT = gallery.reach;
  const named = (name, otherwise) => rows.find((row) => row.name === name) ?? rows[otherwise];
  const first = () => named(read("first"), 0), second = () => named(read("second"), rows.length - 1);
  const sign = () => read("sign", 1), log2 = () => read("log2", 0);
  const across = (log2) => EDGE + ((log2 + LIMIT) / (2 * LIMIT)) * (WIDTH - EDGE - 8);

  // A step is drawn as a step, a point a pixel, and the weight beyond the axis is cut at its end.
  const line = (row, i) => ({
    class: i === 0 ? "curve first" : "curve second",  // wide and pale below, narrow above: equal curves are both seen
    stroke: row.color,
    "stroke-dasharray": row.dashes.map((points) => 1.6 * points).join(" ") || "none",
  });
  const curve = (row, A, i) => {
    const points = gallery.curves[row.curve][A].map((weight, at) => {
      const cut = Math.max(-REACH, Math.min(REACH, weight));
      return `${across(at * gallery.step - LIMIT).toFixed(1)},${down(cut).toFixed(1)}`;
    });
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
  const [signLabel, signSelect] = choice("sign", "token", [[1, "good, A = +1"], [-1, "bad, A = \u22121"]], Number);
  const slider = element("input", { type: "range", min: -LIMIT, max: LIMIT, step: gallery.step, className: "ratio" });
  slider.addEventListener("input", () => write({ log2: Number(slider.value) }));
  const shown = element("output");
  const svg = picture("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
  const said = element("p", { className: "said", role: "status" });
  const root = figure(model, "gate-gallery", STYLE);
  root.append(
    element("div", { className: "controls" }, firstLabel, secondLabel, signLabel,
      element("label", { className: "wide" }, "ratio ", slider, shown)),
    svg, said);

  const draw = () => {
    const w = 2 ** log2(), A = sign(), chosen = [first(), second()];
    const weights = chosen.map((row) => maths.weight(gallery, row, log2(), A));
    firstSelect.value = chosen[0].name;
    secondSelect.value = chosen[1].name;
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
    chosen.forEach((row, i) => {
      const at = Math.max(-REACH, Math.min(REACH, weights[i]));
      const y = 22 + 26 * i;  // the legend: no curve is up here
      svg.append(
        curve(row, A, i),
        picture("line", { ...line(row, i), x1: EDGE + 80, x2: EDGE + 120, y1: y - 5, y2: y - 5 }),
        picture("text", { x: EDGE + 128, y }, row.name),
        picture("circle", { cx: across(log2()), cy: down(at), r: 5, fill: row.color }));
      root.dataset[i === 0 ? "first" : "second"] = String(weights[i]);
    });
    said.replaceChildren(...chosen.map((row, i) =>
      element("span", { textContent: maths.words(row.name, weights[i], w, A) + " " })));
    svg.setAttribute("aria-label", said.textContent);
  };
  for (const name of ["first", "second", "sign", "log2"]) model.on(`change:${name}`, draw);
  draw();
  el.append(root);
}

export default { render, maths };
