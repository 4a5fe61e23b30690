// The balance of the token log-ratios: their mean is where they balance, and its exponential is GSPO's ratio. Both clip
// ranges stand on the line to scale, GSPO's under a lens, too; beside it the product of all ratios, against length.
//
// One file for notebooks (anywidget) and for pages of the book, with nothing but the browser beneath it. What it
// computes is in `maths`, which the tests hold to the library's ratios and to the gradient of its loss.

import { buttons, canvas, choice, element, figure, handle, picture, reader, say, slider, writer } from "./kit.mjs";

const REACH = 0.5, STEP = 0.01; // of a log-ratio, in nats
const LENS = 0.002; // what the lens shows to either side of 0
const TIMES = [1, 2, 5, 10, 20, 50, 100, 200]; // how often the six tokens are repeated
const TOKEN = [0.2, 0.2], SEQUENCE = [3e-4, 4e-4]; // the clip ranges of GRPO and of GSPO, below and above 1
const ROW = 15, FIRST = 42, LINE = FIRST + 6 * ROW + 8, LOW = LINE + 62, HEIGHT = LOW + 34;

const maths = {
  times: TIMES, ranges: { token: TOKEN, sequence: SEQUENCE },
  examples: {
    "one jump": [0.3, 0.02, -0.03, 0.05, -0.07, 0.01],
    "two that cancel": [0.3, -0.3, 0, 0, 0, 0],
    "a common drift": [0.02, 0.02, 0.02, 0.02, 0.02, 0.02],
    "noise": [0.12, -0.2, 0.05, 0.31, -0.09, -0.15],
    "no step yet": [0, 0, 0, 0, 0, 0],
  },

  // Three ways to make one number of the ratios of a completion that repeats these tokens.
  averages: (logs, times) => {
    const sum = logs.reduce((a, b) => a + b, 0), mean = sum / logs.length;
    return { n: logs.length * times, mean, geometric: Math.exp(mean), product: Math.exp(sum * times),
      arithmetic: logs.reduce((a, b) => a + Math.exp(b), 0) / logs.length };
  },

  // Whether the minimum has picked the clipped product, so that there is no gradient.
  clipped: (ratio, sign, [low, high]) => (sign > 0 ? ratio > 1 + high : ratio < 1 - low),
  dropped: (logs, sign) => ({
    tokens: logs.map((d) => maths.clipped(Math.exp(d), sign, TOKEN)),
    whole: maths.clipped(Math.exp(maths.averages(logs, 1).mean), sign, SEQUENCE),
  }),

  signed: (x, digits = 2) => (x > 0 ? "+" : "") + say(x, digits),
  ratio: (x) => (x >= 1e4 || x < 1e-3 ? x.toExponential(1).replace("+", "").replace("-", "\u2212")
    : Math.abs(x - 1) < 0.01 ? say(x, 5) : say(x, 3)),

  // What happened, in words.
  words: (logs, times, sign) => {
    const { n, mean, geometric, product } = maths.averages(logs, times), { tokens, whole } = maths.dropped(logs, sign);
    const inside = geometric >= 1 - SEQUENCE[0] && geometric <= 1 + SEQUENCE[1];
    const fate = whole ? `It is outside GSPO's clip range, in the direction of the advantage: no token of the completion has a gradient. `
      : inside ? "It is inside GSPO's clip range: every token has a gradient, all with this one weight. "
        : "It is outside GSPO's clip range, on the side where the clip does not act: every token has a gradient, all with this one weight. ";
    const silent = tokens.filter(Boolean).length;
    const single = silent === 0 ? "GRPO clips none of the six. " : `GRPO clips ${silent} of the six and keeps the others. `;
    return `The log-ratios balance at ${maths.signed(mean, 4)}, so s = ${maths.ratio(geometric)}. ${fate}${single}` +
      `Over ${n} tokens the product of all ratios is ${maths.ratio(product)}; s is the same at every length.`;
  },
};

const STYLE = `
.mean-balance svg text { fill: currentColor; font-size: 13px; } .mean-balance svg .small { font-size: 12px; }
.mean-balance .arm { stroke: currentColor; stroke-opacity: 0.4; } .mean-balance .mean { stroke: currentColor; stroke-width: 2; }
.mean-balance .pivot { fill: currentColor; } .mean-balance .narrow { fill: #9b59d0; fill-opacity: 0.75; }
.mean-balance .lens { stroke: currentColor; stroke-opacity: 0.3; stroke-dasharray: 3 3; }
.mean-balance .dot { stroke-width: 2; } .mean-balance .up { stroke: #3b8fcf; } .mean-balance .down { stroke: #d9671e; }
.mean-balance .dot.off { fill: none; } .mean-balance .handle .hit { fill: transparent; }
.mean-balance .curve { fill: none; stroke: currentColor; stroke-width: 2; } .mean-balance .curve.s { stroke: #9b59d0; stroke-width: 3; }
.mean-balance label { display: flex; max-width: 24rem; margin: 0.6rem 0 0.2rem; } .mean-balance label input { flex: 1; }
.mean-balance .said { min-height: 7em; }
@media (max-width: 480px) { .mean-balance .said { min-height: 9.8em; } .mean-balance svg .small { font-size: 11px; } }
`;

function render({ model, el }) {
  const read = reader(model), write = writer(model);
  const state = () => [read("log_ratios", maths.examples["one jump"]), read("times", 1), read("sign", 1)];

  const root = figure(model, "mean-balance", STYLE);
  const examples = buttons(maths.examples, write, (values) => ({ log_ratios: [...values] }));
  const [signs, pressSign] = choice("advantage", { 1: "A > 0", "-1": "A < 0" }, (value) => write({ sign: Number(value) }));
  const [length, showLength] = slider("times", "tokens", { min: 0, max: TIMES.length - 1, step: 1 }, (i) => write({ times: TIMES[i] }));
  const said = element("p", { className: "said", role: "status" });
  el.append(root);
  const [svg, width, fit] = canvas(root, HEIGHT, () => draw());
  const [chart, , fitChart] = canvas(root, 170, () => plot());
  svg.setAttribute("aria-label", "six token log-ratios on a line, and the point where they balance");
  chart.setAttribute("role", "img");
  root.append(element("div", { className: "controls" }, examples, signs), svg, length, chart, said);
  const back = picture("g", { "aria-hidden": "true" });
  svg.append(back);

  const EDGE = 14, half = () => width() / 2 - EDGE, x = (d) => width() / 2 + (d / REACH) * half();
  const near = (d) => width() / 2 + (d / LENS) * half();
  const dots = Array.from({ length: 6 }, (_, i) => handle(svg, `log-ratio of token ${i + 1}`, { min: -REACH, max: REACH, step: STEP }, {
    value: () => state()[0][i],
    moved: (value) => write({ log_ratios: state()[0].map((old, j) => (j === i ? value : old)) }),
    at: (place) => ((place.x - width() / 2) / half()) * REACH,
  }, picture("circle", { class: "hit", r: 12 }), picture("circle", { class: "dot", r: 5.5 })));

  function draw() {
    const [logs, times, sign] = state(), { mean, geometric } = maths.averages(logs, times), { tokens, whole } = maths.dropped(logs, sign);
    pressSign(sign);
    showLength(TIMES.indexOf(times), String(6 * times));
    back.replaceChildren();
    const put = (tag, attributes, words = "") => back.append(picture(tag, attributes, words));
    const line = (x1, y1, x2, y2, kind) => put("line", { x1, y1, x2, y2, class: kind });
    const text = (at, y, words, kind = "", anchor = "middle") => put("text", { x: at, y, "text-anchor": anchor, class: kind }, words);
    const band = (place, [low, high], top, bottom, kind) => put("rect",
      { class: kind, x: place(Math.log(1 - low)), width: place(Math.log(1 + high)) - place(Math.log(1 - low)), y: top, height: bottom - top });
    band(x, TOKEN, 20, LINE, "band");
    band(x, SEQUENCE, 20, LINE, "narrow");
    text(x(0), 13, "GRPO's clip range (grey); GSPO's, to scale (purple)", "small");
    line(EDGE, LINE, width() - EDGE, LINE, "edge");
    for (const tick of [-0.4, -0.2, 0.2, 0.4]) text(x(tick), LINE + 16, say(tick, 1), "small");
    line(x(mean), FIRST - 12, x(mean), LINE, "mean");
    put("path", { class: "pivot", d: `M ${x(mean)} ${LINE} l 8 13 h -16 z` });
    logs.forEach((d, i) => {
      const y = FIRST + i * ROW;
      line(x(mean), y, x(d), y, "arm");
      dots[i].setAttribute("transform", `translate(${x(d)} ${y})`);
      dots[i].querySelector(".dot").setAttribute("class", `dot ${sign > 0 ? "up" : "down"}${tokens[i] ? " off" : ""}`);
      dots[i].setAttribute("aria-valuenow", d);
      dots[i].setAttribute("aria-valuetext", `${say(d)}${tokens[i] ? ", clipped by GRPO" : ""}`);
    });
    // The lens: the same line, 250 times as large.
    line(x(-LENS), LINE, near(-LENS), LOW - 14, "lens");
    line(x(LENS), LINE, near(LENS), LOW - 14, "lens");
    band(near, SEQUENCE, LOW - 14, LOW, "narrow");
    line(EDGE, LOW, width() - EDGE, LOW, "edge");
    for (const tick of [-0.001, 0, 0.001]) text(near(tick), LOW + 16, say(tick, tick ? 3 : 0), "small");
    text(EDGE, LOW + 31, `log-ratio, enlarged ${REACH / LENS} times below`, "small", "start");
    const shown = Math.max(-LENS, Math.min(LENS, mean)), away = shown !== mean;
    put("path", { class: "pivot", d: away ? `M ${near(shown)} ${LOW - 7} l ${-9 * Math.sign(mean)} -6 v 12 z` : `M ${near(shown)} ${LOW - 1} l 7 -12 h -14 z` });
    text(width() - EDGE, LOW + 31, `s = ${maths.ratio(geometric)}${whole ? ": clipped" : ""}`, "", "end");
  }

  // Product, arithmetic and geometric mean against length, both axes logarithmic.
  function plot() {
    const [logs, times] = state(), found = maths.averages(logs, times), wide = width(), DECADES = 3;
    const left = 46, right = wide - 8, top = 18, bottom = 136;
    const across = (n) => left + (Math.log(n / 6) / Math.log(200)) * (right - left);
    const down = (ratio) => (top + bottom) / 2 - (Math.max(-DECADES, Math.min(DECADES, Math.log10(ratio))) / DECADES) * ((bottom - top) / 2);
    chart.replaceChildren();
    const put = (tag, attributes, words = "") => chart.append(picture(tag, attributes, words));
    for (const [tick, name] of [[1e-3, "0.001"], [1, "1"], [1e3, "1000"]]) {
      put("line", { class: "edge", x1: left, x2: right, y1: down(tick), y2: down(tick) });
      put("text", { class: "small", x: left - 6, y: down(tick) + 4, "text-anchor": "end" }, name);
    }
    for (const n of [6, 60, 600]) put("text", { class: "small", x: across(n), y: bottom + 16, "text-anchor": "middle" }, String(n));
    put("text", { class: "small", x: right, y: bottom + 30, "text-anchor": "end" }, "tokens");
    const lengths = Array.from({ length: 121 }, (_, i) => 6 * 200 ** (i / 120));
    const curve = (f, kind) => put("polyline", { class: `curve ${kind}`, points: lengths.filter((n) => Math.abs(Math.log10(f(n))) <= DECADES).map((n) => `${across(n).toFixed(1)},${down(f(n)).toFixed(1)}`).join(" ") });
    curve((n) => Math.exp(found.mean * n), "product");
    curve(() => found.geometric, "s");
    const now = 6 * times, product = Math.exp(Math.max(-700, Math.min(700, found.mean * now)));
    put("line", { class: "lens", x1: across(now), x2: across(now), y1: top, y2: bottom });
    put("circle", { cx: across(now), cy: down(product), r: 4, class: "pivot" });
    put("text", { class: "small", x: left + 4, y: 12 }, "product of the ratios (thin line), s (purple)");
    chart.setAttribute("aria-label", `At ${now} tokens the product of the ratios is ${maths.ratio(product)}, their geometric mean ` +
      `${maths.ratio(found.geometric)}, their arithmetic mean ${maths.ratio(found.arithmetic)}.`);
    said.textContent = maths.words(...state());
  }
  for (const name of ["log_ratios", "times", "sign"]) model.on(`change:${name}`, () => { draw(); plot(); });
  fit();
  fitChart();
}

export default { render, maths };
