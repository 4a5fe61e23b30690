// The landscape explorer: a policy of two parameters, its expected reward as a map, the exact gradient at a point, and
// sixty estimates of it, each from its own batch of samples.
//
// One file for notebooks (anywidget) and for pages of the book, with nothing but the browser beneath it. Three outcomes
// with rewards 3, 2 and 1; the policy is the softmax of the logits (a, b, 0). Everything but the arrows is exact; the
// arrows are drawn from a generator with a seed, so that the same picture comes back. The tests hold `maths` to autograd.

import { element, figure, picture, reader, writer } from "./kit.mjs";

const REWARDS = [3, 2, 1], ARROWS = 60, REACH = 3; // both parameters lie between -REACH and REACH
const BASELINES = ["none", "mean", "best", "useless"];
const BATCHES = [1, 4, 16, 64, 256];

const maths = {
  // Probabilities of the three outcomes.
  policy: (a, b) => {
    const e = [Math.exp(a), Math.exp(b), 1], sum = e[0] + e[1] + e[2];
    return e.map((x) => x / sum);
  },

  // The gradient of log p of each outcome, in (a, b).
  scores: (p) => [0, 1, 2].map((k) => [(k === 0) - p[0], (k === 1) - p[1]]),

  // Everything exact at a point: expected reward, gradient, the baseline's number, the noise of one estimate.
  measure: (a, b, kind, batch) => {
    const p = maths.policy(a, b), scores = maths.scores(p);
    const over = (f) => p.reduce((sum, chance, k) => sum + chance * f(k), 0);
    const square = scores.map(([x, y]) => x * x + y * y);
    const J = over((k) => REWARDS[k]);
    const best = over((k) => REWARDS[k] * square[k]) / over((k) => square[k]);
    const baseline = { none: 0, mean: J, best, useless: 2 * best }[kind];
    const mean = [0, 1].map((i) => over((k) => (REWARDS[k] - baseline) * scores[k][i]));
    const second = over((k) => (REWARDS[k] - baseline) ** 2 * square[k]);
    const noise = Math.sqrt(Math.max(second - mean[0] ** 2 - mean[1] ** 2, 0) / batch);
    return { p, J, baseline, gradient: mean, length: Math.hypot(...mean), noise };
  },

  // Numbers between 0 and 1 that look drawn, and are the same for the same seed (mulberry32).
  dice: (seed) => {
    let state = (seed * 0x9e3779b9) >>> 0;
    return () => {
      state = (state + 0x6d2b79f5) >>> 0;
      let t = state;
      t = Math.imul(t ^ (t >>> 15), t | 1);
      t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
      return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
    };
  },

  // Estimates of the gradient, each the mean of (reward - baseline) x score over a batch of its own.
  estimates: (a, b, kind, batch, seed, count = ARROWS) => {
    const { p, baseline } = maths.measure(a, b, kind, batch), scores = maths.scores(p), throwing = maths.dice(seed);
    return Array.from({ length: count }, () => {
      const sum = [0, 0];
      for (let n = 0; n < batch; n += 1) {
        const u = throwing(), k = u < p[0] ? 0 : u < p[0] + p[1] ? 1 : 2;
        for (const i of [0, 1]) sum[i] += (REWARDS[k] - baseline) * scores[k][i];
      }
      return sum.map((x) => x / batch);
    });
  },

  // How many of them have a positive part along the exact gradient: a small step there raises the expected reward.
  uphill: (arrows, gradient) => arrows.filter(([x, y]) => x * gradient[0] + y * gradient[1] > 0).length,

  // The line on which the expected reward is c, as points: for each b the a that solves it, where there is one.
  level: (c) => Array.from({ length: 121 }, (_, i) => -REACH + (i * REACH) / 60).flatMap((b) => {
    const e = (c - REWARDS[2] + (c - REWARDS[1]) * Math.exp(b)) / (REWARDS[0] - c);
    return e > 0 ? [[Math.log(e), b]] : [];
  }),

  words: (a, b, kind, batch, seed) => {
    const { J, baseline, gradient, length, noise } = maths.measure(a, b, kind, batch);
    const up = maths.uphill(maths.estimates(a, b, kind, batch, seed), gradient);
    const what = {
      none: "No baseline.",
      mean: `Baseline: the mean reward, ${baseline.toFixed(2)}.`,
      best: `Baseline: the best constant, ${baseline.toFixed(2)}.`,
      useless: `Baseline: twice the best constant, ${baseline.toFixed(2)}. It leaves exactly the noise of no baseline.`,
    }[kind];
    return `${what} Expected reward ${J.toFixed(2)}. The exact gradient has length ${length.toFixed(3)}; one estimate from ` +
      `${batch} sample${batch === 1 ? "" : "s"} has this mean and noise ${noise.toFixed(3)}, ${(noise / length).toFixed(1)} times the length. ` +
      `${up} of ${ARROWS} arrows point uphill.`;
  },
};

const STYLE = `
.landscape-explorer input[type=range] { min-width: 0; width: 8rem; margin: 0; accent-color: #3b8fcf; }
.landscape-explorer output { font-variant-numeric: tabular-nums; white-space: nowrap; min-width: 2.6em; }
.landscape-explorer svg { display: block; width: 100%; max-width: 26rem; touch-action: none; cursor: crosshair; }
.landscape-explorer .frame { fill: none; stroke: currentColor; stroke-opacity: 0.5; }
.landscape-explorer .level { fill: none; stroke: currentColor; stroke-opacity: 0.35; }
.landscape-explorer text { fill: currentColor; font-size: 11px; }
.landscape-explorer .up { stroke: #3b8fcf; } .landscape-explorer .down { stroke: #d9671e; }
.landscape-explorer .arrow { stroke-width: 1.6; stroke-opacity: 0.75; fill: none; }
.landscape-explorer .exact { stroke: currentColor; stroke-width: 4; fill: none; }
`;
const NAMES = { none: "none", mean: "the mean reward", best: "the best constant", useless: "twice the best constant" };
const SIZE = 360, STRETCH = 3; // of the picture; arrows are drawn three times as long

const across = (a) => ((a + REACH) / (2 * REACH)) * SIZE, upwards = (b) => SIZE - across(b);
const shown = (x) => x.toFixed(1).replace(/^-(0\.0)$/, "$1").replace("-", "\u2212");
let number = 0; // of the figure on its page: ids have to differ

function arrow(from, by, kind, head) {
  const to = [from[0] + STRETCH * by[0], from[1] + STRETCH * by[1]];
  const [x, y, u, v] = [across(from[0]), upwards(from[1]), across(to[0]), upwards(to[1])];
  const angle = Math.atan2(v - y, u - x), wing = (turn) =>
    `${(u - head * Math.cos(angle + turn)).toFixed(2)} ${(v - head * Math.sin(angle + turn)).toFixed(2)}`;
  return picture("path", { class: kind, d: `M ${x.toFixed(2)} ${y.toFixed(2)} L ${u.toFixed(2)} ${v.toFixed(2)} ` +
    `M ${wing(0.5)} L ${u.toFixed(2)} ${v.toFixed(2)} L ${wing(-0.5)}` });
}

function render({ model, el }) {
  const read = reader(model);
  const write = writer(model);
  const state = () => [read("a", -1), read("b", 0.5), read("baseline", "none"), read("batch", 16), read("draw", 0)];

  const root = figure(model, "landscape-explorer", STYLE);

  const slider = (name, text) => {
    const input = element("input", { type: "range", min: -REACH, max: REACH, step: 0.1, className: name });
    const out = element("output");
    input.addEventListener("input", () => write({ [name]: Number(input.value) }));
    return { label: element("label", {}, text, input, out), show: (value) => { input.value = value; out.textContent = shown(value); } };
  };
  const a = slider("a", "\u03b8\u2081 "), b = slider("b", "\u03b8\u2082 ");
  const baseline = element("select", { className: "baseline" });
  for (const kind of BASELINES) baseline.append(element("option", { value: kind, textContent: NAMES[kind] }));
  baseline.addEventListener("change", () => write({ baseline: baseline.value }));
  const batch = element("select", { className: "batch" });
  for (const size of BATCHES) batch.append(element("option", { value: size, textContent: size }));
  batch.addEventListener("change", () => write({ batch: Number(batch.value) }));
  const again = element("button", { type: "button", className: "again", textContent: "draw again" });
  again.addEventListener("click", () => write({ draw: (state()[4] + 1) % 1000 }));

  const clip = `landscape-clip-${(number += 1)}`, arrows = picture("g", { "clip-path": `url(#${clip})` });
  const map = picture("svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, role: "img" },
    picture("clipPath", { id: clip }, picture("rect", { x: 0, y: 0, width: SIZE, height: SIZE })));
  const levels = picture("g", { "clip-path": `url(#${clip})` });
  for (let c = 1.2; c < 2.9; c += 0.2) {
    const points = maths.level(c).filter(([x]) => Math.abs(x) < 2 * REACH);
    levels.append(picture("polyline", { class: "level", points: points.map(([x, y]) => `${across(x).toFixed(1)},${upwards(y).toFixed(1)}`).join(" ") }));
    const label = points.find(([x, y]) => y > -2.8 && Math.abs(x) < 2.7);
    if (label) levels.append(picture("text", { x: across(label[0]) + 3, y: upwards(label[1]) }, c.toFixed(1)));
  }
  map.append(levels, picture("rect", { class: "frame", x: 0.5, y: 0.5, width: SIZE - 1, height: SIZE - 1 }), arrows);

  // Drag the point: where the pointer is, in steps of the sliders.
  const follow = (event) => {
    const box = map.getBoundingClientRect();
    const inside = (share) => Math.round(10 * Math.max(-REACH, Math.min(REACH, (2 * share - 1) * REACH))) / 10;
    write({ a: inside((event.clientX - box.left) / box.width), b: inside(1 - (event.clientY - box.top) / box.height) });
  };
  map.addEventListener("pointerdown", (event) => { map.setPointerCapture(event.pointerId); follow(event); });
  map.addEventListener("pointermove", (event) => { if (map.hasPointerCapture(event.pointerId)) follow(event); });

  const said = element("p", { className: "said", role: "status" });
  root.append(
    element("div", { className: "controls" }, a.label, b.label, element("label", {}, "baseline ", baseline),
      element("label", {}, "samples per arrow ", batch), again),
    map,
    element("p", { className: "key", textContent: "Lines: equal expected reward. Black or white: the exact gradient. Thin: estimates, blue " +
      "if a small step along them raises the expected reward. All arrows are drawn three times as long as they are." }),
    said,
  );

  const draw = () => {
    const [x, y, kind, size, seed] = state();
    a.show(x);
    b.show(y);
    baseline.value = kind;
    batch.value = size;
    const { gradient, J } = maths.measure(x, y, kind, size), drawn = maths.estimates(x, y, kind, size, seed);
    arrows.replaceChildren(
      ...drawn.map((by) => arrow([x, y], by, `arrow ${maths.uphill([by], gradient) ? "up" : "down"}`, 5)),
      arrow([x, y], gradient, "exact", 9),
      picture("circle", { cx: across(x), cy: upwards(y), r: 5, fill: "currentColor" }),
    );
    map.setAttribute("aria-label", `map of the expected reward, ${J.toFixed(2)} at the point (${shown(x)}, ${shown(y)}), with ` +
      `${ARROWS} estimates of the gradient, ${maths.uphill(drawn, gradient)} of them uphill`);
    said.textContent = maths.words(x, y, kind, size, seed);
  };
  for (const name of ["a", "b", "baseline", "batch", "draw"]) model.on(`change:${name}`, draw);
  draw();
  el.append(root);
}

export default { render, maths };
