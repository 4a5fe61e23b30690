// The head-room explorer: one token, its probability when it was sampled, and a clip range. How far may the probability
// move up and down before the gradient of that token is cut?
//
// One file for notebooks (anywidget) and for pages of the book, with nothing but the browser beneath it. What it
// computes is in `maths`, which the tests hold to the library's gate by autograd.

import { buttons, element, figure, picture, writer } from "./kit.mjs";

const maths = {
  odds: { min: -3.9, max: 2.9, step: 0.05 }, // of the first slider: log10 of p / (1 - p)
  low: { min: 0, max: 0.9, step: 0.01 },
  high: { min: 0, max: 1, step: 0.01 },

  examples: {
    "PPO, rare token": [0.01, 0.2, 0.2],
    "DAPO, rare token": [0.01, 0.2, 0.28],
    "DAPO, in the middle": [0.5, 0.2, 0.28],
    "DAPO, sure token": [0.9, 0.2, 0.28],
  },

  fromOdds: (x) => 1 / (1 + 10 ** -x),
  toOdds: (p) => Math.log10(p / (1 - p)),

  // Where the gradient ends in both directions, and what the upper bound leaves of the way to 1.
  compute: (p, low, high) => {
    const binds = p * (1 + high) < 1;
    const top = binds ? p * (1 + high) : 1, bottom = p * (1 - low);
    return {
      top, bottom, binds, up: top - p, down: p - bottom,
      share: (top - p) / (1 - p), // of what is missing to 1
      logUp: Math.log1p(high), logDown: -Math.log1p(-low), // nats
      doubles: high > 0 ? Math.ceil(Math.LN2 / Math.log1p(high) - 1e-9) : null, // rollouts until the bound lets p double
    };
  },

  say: (x) => (x === 0 || Math.abs(x) >= 0.1 ? x.toFixed(3) : x.toPrecision(3)),

  words: (p, low, high) => {
    const { say } = maths, found = maths.compute(p, low, high);
    const up = found.binds
      ? `If its advantage is positive, it is pushed up until ${say(found.top)}: a gain of ${say(found.up)}, ` +
        `${say(100 * found.share)} % of what is missing to 1.`
      : `If its advantage is positive, the upper bound of ${say(1 + high)} cannot be reached: a probability of 1 is a ` +
        `ratio of ${say(1 / p)}.`;
    const down = `If it is negative, it is pushed down until ${say(found.bottom)}: a loss of ${say(found.down)}.`;
    const balance = Math.abs(found.logUp - found.logDown) < 5e-4 ? "equal in both directions"
      : found.logUp > found.logDown ? "more room up than down" : "more room down than up";
    return `${up} ${down} In logarithms: ${say(found.logUp)} nats up, ${say(found.logDown)} down, ${balance}.`;
  },
};

const STYLE = `
.headroom .examples { display: flex; flex-wrap: wrap; gap: 0.3rem; margin-bottom: 0.6rem; }
.headroom label { display: grid; grid-template-columns: minmax(7rem, 13rem) 1fr 7ch; gap: 0.5rem; align-items: center;
  margin-block: 0.35rem; }
.headroom input { min-width: 0; width: 100%; margin: 0; accent-color: #3b8fcf; }
.headroom output { font-variant-numeric: tabular-nums; text-align: end; }
.headroom svg { display: block; width: 100%; height: auto; margin-top: 0.6rem; }
.headroom svg text { fill: currentColor; font-size: 13px; }
.headroom svg .axis { stroke: currentColor; stroke-opacity: 0.6; }
.headroom .up { fill: #0072b2; } .headroom .down { fill: #d55e00; }
.headroom .now { stroke: currentColor; stroke-width: 3; }
@media (max-width: 480px) { .headroom { font-size: 0.8rem; } .headroom .said { min-height: 8.4em; }
  .headroom svg text { font-size: 22px; } .headroom label { grid-template-columns: 7rem 1fr 7ch; } }
`;

// Ticks that would touch one another on a phone if they were written out.
const POWERS = { 0.00001: "10\u207b\u2075", 0.0001: "10\u207b\u2074", 0.001: "10\u207b\u00b3" };

// One axis of probabilities, with what lies between the bounds and the probability itself.
function axis(svg, y, title, place, ticks, p, found) {
  const bar = (from, to, kind) => svg.append(picture("rect", {
    x: place(from), y: y - 16, width: Math.max(0, place(to) - place(from)), height: 16, class: kind,
  }));
  svg.append(picture("text", { x: 10, y: y - 26 }, title));
  bar(found.bottom, p, "down");
  bar(p, found.top, "up");
  svg.append(picture("line", { x1: 10, x2: 590, y1: y, y2: y, class: "axis" }));
  for (const tick of ticks) {
    svg.append(picture("line", { x1: place(tick), x2: place(tick), y1: y, y2: y + 5, class: "axis" }));
    const anchor = place(tick) < 20 ? "start" : place(tick) > 580 ? "end" : "middle";
    svg.append(picture("text", { x: place(tick), y: y + 24, "text-anchor": anchor }, POWERS[tick] ?? String(tick)));
  }
  svg.append(picture("line", { x1: place(p), x2: place(p), y1: y - 21, y2: y + 4, class: "now" }));
}

function render({ model, el }) {
  const [startP, startLow, startHigh] = maths.examples["DAPO, rare token"];
  const state = () => [model.get("p") ?? startP, model.get("low") ?? startLow, model.get("high") ?? startHigh];
  const write = writer(model);
  const root = figure(model, "headroom", STYLE);
  const examples = buttons(maths.examples, write, ([p, low, high]) => ({ p, low, high }));
  const controls = {}, labels = element("div");
  for (const [name, text, range, read] of [
    ["p", "probability when sampled", maths.odds, (x) => Number(maths.fromOdds(x).toPrecision(4))],
    ["low", "lower bound: 1 \u2212", maths.low, (x) => x],
    ["high", "upper bound: 1 +", maths.high, (x) => x],
  ]) {
    const slider = element("input", { type: "range", ...range, className: `${name}-slider` });
    const output = element("output");
    slider.addEventListener("input", () => write({ [name]: read(Number(slider.value)) }));
    labels.append(element("label", {}, text, slider, output));
    controls[name] = { slider, output };
  }
  const svg = picture("svg", { viewBox: "0 0 600 200", role: "img" });
  const said = element("p", { className: "said", role: "status" });
  root.append(examples, labels, svg, said);

  const draw = () => {
    const now = state(), [p, low, high] = now, found = maths.compute(...now), { say } = maths;
    for (const [name, value] of [["p", p], ["low", low], ["high", high]]) {
      controls[name].slider.value = name === "p" ? maths.toOdds(p) : value;
      controls[name].output.textContent = name === "p" ? say(p) : value.toFixed(2);
      controls[name].slider.setAttribute("aria-valuetext", name === "p" ? `probability ${say(p)}` : value.toFixed(2));
    }
    svg.replaceChildren();
    svg.setAttribute("aria-label", `from ${say(found.bottom)} over ${say(p)} to ${say(found.top)}`);
    axis(svg, 60, "probability", (x) => 10 + 580 * x, [0, 0.25, 0.5, 0.75, 1], p, found);
    const place = (x) => 10 + 580 * (1 + Math.log10(Math.max(x, 1e-5)) / 5);
    axis(svg, 162, "the same, logarithmic", place, [0.00001, 0.0001, 0.001, 0.01, 0.1, 1], p, found);
    said.textContent = maths.words(...now);
  };
  for (const name of ["p", "low", "high"]) model.on(`change:${name}`, draw);
  draw();
  el.append(root);
}

export default { render, maths };
