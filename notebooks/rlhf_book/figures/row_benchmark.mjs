// The benchmark of all rows: choose a group and two of its rows, and see what five seeds say about their difference.
//
// One file for notebooks (anywidget) and for pages of the book, with nothing but the browser beneath it. Curves, and which
// pairs are separated, are given to it as rlhf_book.benchmark.explorer_table makes them; it subtracts, averages and draws.

import { element, figure, picture, writer } from "./kit.mjs";

const maths = {
  // The row whose runs stand for a row of the group.
  runOf: (group, name) => group.rows.find((row) => row.name === name)?.run,

  // One row minus the other: by seed and point, and by point the mean with the ends of its interval.
  compare: (group, t, first, second) => {
    const [one, other] = [first, second].map((name) => group.curves[maths.runOf(group, name)]);
    const seeds = one.map((curve, seed) => curve.map((value, i) => value - other[seed][i]));
    const n = seeds.length;
    const points = group.samples.map((_, i) => {
      const values = seeds.map((seed) => seed[i]), mean = values.reduce((a, b) => a + b, 0) / n;
      const spread = values.reduce((a, b) => a + (b - mean) ** 2, 0) / (n - 1);
      const half = t * Math.sqrt(spread / n);
      return { mean, low: mean - half, high: mean + half };
    });
    return { seeds, points };
  },

  separated: (group, first, second) => {
    const pair = [first, second].map((name) => maths.runOf(group, name));
    return group.separated.some((one) => one.includes(pair[0]) && one.includes(pair[1]));
  },

  doubtful: (group, first, second) => {
    const pair = [first, second].map((name) => maths.runOf(group, name));
    return (group.doubtful ?? []).some((one) => one.includes(pair[0]) && one.includes(pair[1]));
  },

  // A row's name, with what its runs are where one update leaves its ratio without effect.
  named: (group, name) => {
    const note = group.rows.find((row) => row.name === name)?.note;
    return note ? `${name} (${note})` : name;
  },

  // Five ticks around 0, at round numbers, the outer ones no nearer than `most`; with as many digits as they need.
  ticks: (most) => {
    const power = 10 ** Math.floor(Math.log10(most / 2));
    const step = [1, 2, 5, 10].map((n) => n * power).find((one) => one >= most / 2 - 1e-12) ?? 10 * power;
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    return [-2, -1, 0, 1, 2].map((n) => ({
      at: n * step, text: n === 0 ? "0" : `${n < 0 ? "\u2212" : "+"}${Math.abs(n * step).toFixed(digits)}`,
    }));
  },

  say: (x) => `${x < 0 ? "\u2212" : "+"}${Math.abs(x).toFixed(3)}`,

  words: (group, t, first, second) => {
    const { say } = maths, [one, other] = [first, second].map((name) => maths.runOf(group, name));
    if (first === second) return "Choose two different rows.";
    if (one === other) return `${first} and ${second} are the same runs here: their gradients take the same steps.`;
    const end = maths.compare(group, t, first, second).points.at(-1);
    const { named } = maths;
    const gap = `At the end ${named(group, first)} minus ${named(group, second)} is ${say(end.mean)} in ${group.measure}, [${say(end.low)}, ${say(end.high)}] ` +
      `over ${group.curves[one].length} seeds.`;
    const coin = [one, other].includes(group.control);
    const among = coin ? `all ${group.controls} comparisons with the coin` : `all ${group.pairs} pairs`;
    const doubt = maths.doubtful(group, first, second) ? " Doubtful, since their spread is smaller than the evaluation's." : "";
    return `${gap}${doubt} After the correction for ${among} they are ${maths.separated(group, first, second) ? "" : "not "}separated.`;
  },
};

const STYLE = `
.row-benchmark .controls { display: flex; flex-wrap: wrap; gap: 0.5rem 1rem; align-items: center; margin-bottom: 0.4rem; }
.row-benchmark select { font: inherit; color: inherit; background: transparent; border: 1px solid currentColor;
  border-radius: 0.3rem; padding: 0.15rem 0.4rem; min-height: 1.75rem; max-width: 100%; }
.row-benchmark label { display: inline-flex; flex-wrap: wrap; gap: 0.4rem; align-items: center; max-width: 100%; }
.row-benchmark svg { display: block; width: 100%; height: auto; overflow: hidden; }
.row-benchmark svg text { fill: currentColor; font-size: 13px; }
.row-benchmark .axis { stroke: currentColor; stroke-opacity: 0.25; }
.row-benchmark .zero { stroke: currentColor; }
.row-benchmark .seed { fill: none; stroke: currentColor; stroke-opacity: 0.45; stroke-width: 1.2; }
.row-benchmark .mean { fill: none; stroke: #3b8fcf; stroke-width: 3; }
.row-benchmark .interval { stroke: #3b8fcf; stroke-width: 2; }
@media (max-width: 480px) { .row-benchmark svg text { font-size: 20px; } }
.row-benchmark .said { margin: 0.4rem 0 0; min-height: 5.6em; }
`;

const WIDTH = 640, HEIGHT = 320, EDGE = 64, TOP = 34, FOOT = 28;

function render({ model, el }) {
  const groups = model.get("groups") ?? [], t = model.get("t");
  const root = figure(model, "row-benchmark", STYLE);
  const said = element("p", { className: "said", role: "status" });
  el.append(root);
  const write = writer(model);
  const group = () => groups.find((one) => one.name === model.get("group")) ?? groups[0];
  // A row that the group does not have gives way to one that it has.
  const row = (name) => {
    const names = group().rows.map((one) => one.name), wanted = model.get(name);
    return names.includes(wanted) ? wanted : names[name === "first" ? 0 : 1];
  };
  const menu = (name, label) => {
    const select = element("select", { className: name });
    select.addEventListener("change", () => write({ [name]: select.value }));
    return [element("label", {}, label, select), select];
  };
  const fill = (select, options, value) => {
    const same = select.options.length === options.length && options.every(([name], i) => select.options[i].value === name);
    if (!same) select.replaceChildren(...options.map(([name, text]) => element("option", { value: name, textContent: text })));
    select.value = value;
  };
  const [groupLabel, groupMenu] = menu("group", "task");
  const [firstLabel, firstMenu] = menu("first", "row");
  const [secondLabel, secondMenu] = menu("second", "minus");
  const svg = picture("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
  root.append(element("div", { className: "controls" }, groupLabel, firstLabel, secondLabel), svg, said);

  const draw = () => {
    if (groups.length === 0) {
      said.textContent = "Not recorded yet.";
      svg.setAttribute("aria-label", said.textContent);
      return;
    }
    const now = group(), [first, second] = [row("first"), row("second")];
    fill(groupMenu, groups.map(({ name, title }) => [name, title]), now.name);
    const names = now.rows.map(({ name }) => [name, maths.named(now, name)]);
    fill(firstMenu, names, first);
    fill(secondMenu, names, second);
    const { seeds, points } = maths.compare(now, t, first, second);
    const values = [...seeds.flat(), ...points.flatMap(({ low, high }) => [low, high])];
    const ticks = maths.ticks(Math.max(now.measure === "score" ? 0.5 : 0.05, ...values.map(Math.abs)));
    const most = ticks.at(-1).at, last = now.samples.at(-1);
    const x = (samples) => EDGE + (samples / last) * (WIDTH - EDGE - 12);
    const y = (gap) => TOP + (1 - gap / most) * ((HEIGHT - TOP - FOOT) / 2);
    const line = (curve) => curve.map((gap, i) => `${x(now.samples[i]).toFixed(1)},${y(gap).toFixed(1)}`).join(" ");
    svg.replaceChildren();
    svg.append(picture("text", { x: 2, y: 14 }, `difference in ${now.measure}`));
    for (const { at, text } of ticks) {
      svg.append(
        picture("line", { class: at === 0 ? "zero" : "axis", x1: EDGE, x2: WIDTH - 12, y1: y(at), y2: y(at) }),
        picture("text", { class: "tick", x: EDGE - 6, y: y(at) + 4, "text-anchor": "end" }, text));
    }
    for (const samples of [0, last / 2, last]) {
      const anchor = samples === last ? "end" : samples === 0 ? "start" : "middle";
      svg.append(picture("text", { x: x(samples), y: HEIGHT - 6, "text-anchor": anchor }, samples === last ? `${last} samples` : `${samples}`));
    }
    for (const curve of seeds) svg.append(picture("polyline", { class: "seed", points: line(curve) }));
    svg.append(picture("polyline", { class: "mean", points: line(points.map(({ mean }) => mean)) }));
    points.forEach(({ low, high }, i) => {
      const at = x(now.samples[i]);
      svg.append(picture("line", { class: "interval", x1: at, x2: at, y1: y(low), y2: y(high) }));
    });
    said.textContent = maths.words(now, t, first, second);
    svg.setAttribute("aria-label", said.textContent);
  };
  for (const name of ["group", "first", "second"]) model.on(`change:${name}`, draw);
  draw();
}

export default { render, maths };
