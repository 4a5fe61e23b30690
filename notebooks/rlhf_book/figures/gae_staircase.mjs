// The GAE staircase: a critic's values over the tokens of one completion, each step between two of them a TD error, and
// below the advantage of a chosen token: the sum of the steps from there on, each with its fading weight.
//
// One file for notebooks (anywidget) and for pages of the book, with nothing but the browser beneath it. What it
// computes is in `maths`, which the tests hold to the Python functions of the library.

import { buttons, canvas, choice, element, figure, handle, picture, reader, say, slider, writer } from "./kit.mjs";

const TOKENS = ["I", "think", "48", "<end>"];
const STEP = 0.05; // of a value
const HEIGHT = 330, TOP = 30, FOOT = 150; // of the drawing; of the staircase, where values are 1 and 0
const ZERO = 250, TALL = 46; // the sum's line, and the longest bar on either side of it

const maths = {
  tokens: TOKENS,

  examples: {
    "a critic that saw it": { values: [0.4, 0.35, 0.3, 0.1], reward: 0 },
    "one that is asleep": { values: [0.4, 0.4, 0.4, 0.4], reward: 0 },
    "one that is late": { values: [0.4, 0.4, 0.35, 0.3], reward: 0 },
    "one that hopes": { values: [0.6, 0.7, 0.8, 0.9], reward: 0 },
    "the answer is right": { values: [0.4, 0.35, 0.3, 0.9], reward: 1 },
  },

  // TD errors, gamma 1: the value after a token minus the value before it; after the last one the reward is paid.
  deltas: (values, reward) => values.map((value, t) => (values[t + 1] ?? reward) - value),

  weights: (lam, at, n) => Array.from({ length: n }, (_, t) => (t < at ? 0 : t === at ? 1 : lam ** (t - at))),

  // What each step adds to the advantage of the token `at`, and the sum.
  parts: (values, reward, lam, at) => {
    const weights = maths.weights(lam, at, values.length);
    return maths.deltas(values, reward).map((delta, t) => weights[t] * delta);
  },
  advantage: (values, reward, lam, at) => maths.parts(values, reward, lam, at).reduce((a, b) => a + b, 0),
  advantages: (values, reward, lam) => values.map((_, at) => maths.advantage(values, reward, lam, at)),

  signed: (x) => (say(x) === "0.00" || x < 0 ? "" : "+") + say(x),

  // What happened, in words.
  words: (values, reward, lam, at) => {
    const { signed } = maths, deltas = maths.deltas(values, reward), weights = maths.weights(lam, at, values.length);
    const all = maths.advantages(values, reward, lam);
    const sum = deltas.slice(at).map((delta, i) =>
      `${i === 0 ? say(delta) : `${delta < 0 ? "\u2212" : "+"} ${say(Math.abs(delta))}`} \u00d7 ${say(weights[at + i])}`).join(" ");
    const how = `With \u03bb = ${say(lam)} the advantage of \u201c${TOKENS[at]}\u201d is ${sum} = ${signed(all[at])}. `;
    const ends = `At \u03bb = 0 it is the next step alone, ${signed(deltas[at])}; at \u03bb = 1 the reward minus the value before the ` +
      `token, ${reward} \u2212 ${say(values[at])} = ${signed(reward - values[at])}. `;
    const sizes = all.map(Math.abs), most = Math.max(...sizes), first = sizes.findIndex((size) => size > most - 0.005);
    const alike = sizes.filter((size) => size > most - 0.005).length;
    const who = alike === TOKENS.length ? `All tokens get the same ${all[0] < 0 ? "blame" : "praise"}.`
      : `${all[first] < 0 ? "Blamed" : "Praised"} most: \u201c${TOKENS[first]}\u201d, ${signed(all[first])}.`;
    return how + ends + (most < 0.005 ? "" : who);
  },
};

const STYLE = `
.gae-staircase svg text { fill: currentColor; font-size: 13px; } .gae-staircase svg .small { font-size: 12px; }
.gae-staircase .level { stroke: currentColor; stroke-width: 3; } .gae-staircase .handle .hit { fill: transparent; }
.gae-staircase .drop { stroke-width: 7; } .gae-staircase .drop.up { stroke: #3b8fcf; } .gae-staircase .drop.down { stroke: #d9671e; }
.gae-staircase .whole { fill: none; stroke: currentColor; stroke-opacity: 0.5; stroke-dasharray: 3 2; }
.gae-staircase .reward { stroke: currentColor; stroke-width: 3; stroke-dasharray: 2 3; }
.gae-staircase > .examples { margin-bottom: 0.6rem; } .gae-staircase .strong { font-weight: 700; } .gae-staircase label { display: flex; max-width: 24rem; } .gae-staircase label input { flex: 1; }
.gae-staircase label output { min-width: 2.5em; }
.gae-staircase .said { min-height: 7em; }
@media (max-width: 480px) { .gae-staircase .said { min-height: 9.8em; } .gae-staircase svg .small { font-size: 11px; } }
`;

function render({ model, el }) {
  const read = reader(model), write = writer(model), first = maths.examples["a critic that saw it"];
  const state = () => [read("values", first.values), read("reward", 0), read("lam", 0.5), read("at", 0)];

  const root = figure(model, "gae-staircase", STYLE);
  const examples = buttons(maths.examples, write, ({ values, reward }) => ({ values: [...values], reward }));
  const [tokens, pressToken] = choice("whose advantage", { ...TOKENS }, (value) => write({ at: Number(value) }));
  const [marks, pressMark] = choice("the checker says", { 0: "wrong, 0", 1: "right, 1" }, (value) => write({ reward: Number(value) }));
  const [lam, showLam] = slider("lam", "\u03bb", { min: 0, max: 1, step: 0.05 }, (value) => write({ lam: value }));
  const said = element("p", { className: "said", role: "status" });
  el.append(root);
  const [svg, width, fit] = canvas(root, HEIGHT, () => draw());
  svg.setAttribute("aria-label", "the critic's values before each token, the TD errors between them, and the sum");
  root.append(examples, element("div", { className: "controls" }, element("span", {}, "advantage of"), tokens,
    element("span", {}, "checked:"), marks), lam, svg, said);
  const back = picture("g", { "aria-hidden": "true" });
  svg.append(back);

  const LEFT = 26, column = () => (width() - LEFT) / 5, x = (t) => LEFT + t * column();
  const y = (value) => FOOT - value * (FOOT - TOP);
  const levels = TOKENS.map((_, t) => handle(svg, t === 0 ? "value of the prompt" : `value after \u201c${TOKENS[t - 1]}\u201d`,
    { min: 0, max: 1, step: STEP }, {
      value: () => state()[0][t],
      moved: (value) => write({ values: state()[0].map((old, i) => (i === t ? value : old)) }),
      at: (place) => (FOOT - place.y) / (FOOT - TOP),
    }, picture("rect", { class: "hit", y: -14, height: 28 }), picture("line", { class: "level" })));

  function draw() {
    const [values, reward, lambda, at] = state(), wide = column();
    const deltas = maths.deltas(values, reward), weights = maths.weights(lambda, at, values.length);
    const parts = maths.parts(values, reward, lambda, at), sum = maths.advantage(values, reward, lambda, at);
    pressToken(at);
    pressMark(reward);
    showLam(lambda, say(lambda));
    back.replaceChildren();
    const put = (tag, attributes, words = "") => back.append(picture(tag, attributes, words));
    const text = (at_, down, words, kind = "", anchor = "middle") => put("text", { x: at_, y: down, "text-anchor": anchor, class: kind }, words);
    text(0, 14, "the critic's value V", "", "start");
    for (const tick of [0, 1]) {
      text(LEFT - 8, y(tick) + 4, String(tick), "small", "end");
      put("line", { class: "edge", x1: LEFT, x2: width(), y1: y(tick), y2: y(tick) });
    }
    values.forEach((value, t) => {
      levels[t].setAttribute("transform", `translate(${x(t)} ${y(value)})`);
      levels[t].setAttribute("aria-valuenow", value);
      levels[t].querySelector(".hit").setAttribute("width", wide);
      const level = levels[t].querySelector(".level");
      level.setAttribute("x1", 2);
      level.setAttribute("x2", wide - 2);
      text(x(t) + wide / 2, y(value) + (value > 0.85 ? 17 : -7), say(value), "small");
    });
    put("line", { class: "reward", x1: x(4) + 2, x2: width() - 2, y1: y(reward), y2: y(reward) });
    text(x(4) + wide / 2, y(reward) + (reward ? 17 : -7), `R = ${reward}`, "small");
    const scale = TALL / Math.max(0.3, ...deltas.map(Math.abs), Math.abs(sum));
    const bar = (left, value, size, kind) => put("rect", { class: kind, x: left, width: size, y: ZERO - Math.max(0, value) * scale, height: Math.abs(value) * scale });
    deltas.forEach((delta, t) => {
      const after = values[t + 1] ?? reward, kind = delta < 0 ? "down" : "up", edge = x(t + 1);
      const seen = t < at ? 0.12 : 0.15 + 0.85 * weights[t];
      put("line", { class: `drop ${kind}`, x1: edge, x2: edge, y1: y(values[t]), y2: y(after), "stroke-opacity": seen });
      text(edge, FOOT + 20, TOKENS[t], t === at ? "strong" : "");
      // The step as a dashed outline, and of it what its weight leaves.
      const half = Math.min(17, wide * 0.3);
      if (t >= at) {
        bar(edge - half, delta, 2 * half, "whole");
        bar(edge - half, parts[t], 2 * half, kind);
        text(edge, HEIGHT - 20, `${maths.signed(delta)}`, "small");
        text(edge, HEIGHT - 5, `\u00d7 ${say(weights[t])}`, "small");
      }
    });
    put("line", { class: "edge", x1: LEFT - 10, x2: width(), y1: ZERO, y2: ZERO });
    text(0, FOOT + 38, `the steps from \u201c${TOKENS[at]}\u201d on, and their sum A`, "", "start");
    const half = Math.min(17, wide * 0.3);
    bar(x(0) + wide * 0.38 - half, sum, 2 * half, sum < 0 ? "down" : "up");
    text(x(0) + wide * 0.38, sum < 0 ? ZERO - 9 : ZERO + 19, `A = ${maths.signed(sum)}`, "strong");
    said.textContent = maths.words(values, reward, lambda, at);
  }
  for (const name of ["values", "reward", "lam", "at"]) model.on(`change:${name}`, draw);
  fit();
}

export default { render, maths };
