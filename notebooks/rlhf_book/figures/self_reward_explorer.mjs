// The self-reward explorer: completions are right or wrong, and a judge of the model's own, or a majority of its own
// completions, pays for them. A share of the problems, the dose, has a verifier. Which way does training go?
//
// One file for notebooks (anywidget) and for pages of the book, with nothing but the browser beneath it. What it
// computes is in `maths`, which the tests hold to expected policy gradients by autograd and to listed votes.

import { buttons, element, figure, picture, writer } from "./kit.mjs";

const maths = {
  steps: 60, // expected steps of the policy gradient on one logit, at learning rate 1
  share: { min: 0.02, max: 0.98, step: 0.01 }, // of right completions at the start
  gap: { min: -1, max: 1, step: 0.01 }, // how much oftener the judge says yes to right completions than to wrong ones
  dose: { min: 0, max: 1, step: 0.01 }, // share of the problems that have a verifier

  sources: { judge: "a judge", "majority-3": "the majority of 3 others", "majority-15": "the majority of 15 others" },

  examples: {
    "a judge that sees": ["judge", 0.2, 0.4, 0],
    "a fooled judge": ["judge", 0.6, -0.3, 0.05],
    "the same, more dose": ["judge", 0.6, -0.3, 0.35],
    "a coin": ["judge", 0.6, 0, 0],
    "majority, ahead": ["majority-15", 0.6, 0, 0],
    "majority, behind": ["majority-15", 0.4, 0, 0],
  },

  // The chance that most of n voters are right, n odd.
  majority: (p, n) => {
    let total = 0, ways = 1; // n choose k
    for (let k = 0; k <= n; k++) {
      if (2 * k > n) total += ways * p ** k * (1 - p) ** (n - k);
      ways = (ways * (n - k)) / (k + 1);
    }
    return total;
  },

  // What a right completion earns on average without a verifier, minus what a wrong one earns.
  own: (source, p, gap) =>
    source === "judge" ? gap : 2 * maths.majority(p, Number(source.split("-")[1])) - 1,

  paid: (source, p, gap, dose) => dose + (1 - dose) * maths.own(source, p, gap),

  compute: (source, share, gap, dose) => {
    const path = [share];
    let logit = Math.log(share / (1 - share));
    for (let i = 0; i < maths.steps; i++) {
      const p = path[i];
      logit += p * (1 - p) * maths.paid(source, p, gap, dose);
      path.push(1 / (1 + Math.exp(-logit)));
    }
    const own = maths.own(source, share, gap);
    return { path, own, paid: maths.paid(source, share, gap, dose), needed: own < 0 ? -own / (1 - own) : 0 };
  },

  say: (x) => `${x < 0 ? "\u2212" : ""}${Math.abs(x).toFixed(2)}`,

  words: (source, share, gap, dose) => {
    const { say } = maths, found = maths.compute(source, share, gap, dose), last = found.path.at(-1);
    const pay = `At the start a right completion earns ${say(Math.abs(found.paid))} ` +
      `${found.paid < 0 ? "less" : "more"} than a wrong one (${say(found.own)} without a verifier).`;
    const goes = Math.abs(found.paid) < 0.005 ? "So nothing pulls in either direction:"
      : found.paid > 0 ? "So right completions win:" : "So right completions lose:";
    const dosed = found.own < -0.005 ? `Above a dose of ${say(found.needed)} they would win.`
      : found.own < 0.005 ? "Any dose makes them win." : "They would win without a dose, too.";
    return `${pay} ${goes} ${say(share)} before, ${say(last)} after ${maths.steps} steps. ${dosed}`;
  },
};

const STYLE = `
.selfreward .examples { display: flex; flex-wrap: wrap; gap: 0.3rem; margin-bottom: 0.6rem; }
.selfreward label { display: grid; grid-template-columns: minmax(7rem, 15rem) 1fr 5ch; gap: 0.5rem; align-items: center; }
.selfreward label.menu { grid-template-columns: minmax(7rem, 15rem) 1fr; }
.selfreward select { min-width: 0; width: 100%; }
.selfreward input { min-width: 0; width: 100%; margin: 0; accent-color: #3b8fcf; }
.selfreward output { font-variant-numeric: tabular-nums; text-align: end; }
.selfreward svg { display: block; width: 100%; height: auto; margin-top: 0.6rem; }
.selfreward svg text { fill: currentColor; font-size: 13px; }
.selfreward svg .axis { stroke: currentColor; stroke-opacity: 0.5; }
.selfreward svg .curve { fill: none; stroke: #0072b2; stroke-width: 2.5; }
.selfreward svg .own { stroke: currentColor; stroke-opacity: 0.7; stroke-width: 1.5; stroke-dasharray: 5 4; }
.selfreward svg .now { fill: #d55e00; }
@media (max-width: 480px) { .selfreward { font-size: 0.8rem; } .selfreward .said { min-height: 8.4em; }
  .selfreward svg text { font-size: 20px; } .selfreward label { grid-template-columns: 7rem 1fr 5ch; }
  .selfreward label.menu { grid-template-columns: 7rem 1fr; } }
`;

// One panel: a frame with a scale from `low` to `high`, and a line through points (0 to 1, value).
function panel(svg, left, title, foot, low, high, curves, dot) {
  const x = (v) => left + 42 + 225 * v, y = (v) => 178 - 140 * ((v - low) / (high - low));
  svg.append(picture("text", { x: left + 8, y: 18 }, title));
  for (const tick of [low, (low + high) / 2, high]) {
    svg.append(picture("line", { x1: x(0), x2: x(1), y1: y(tick), y2: y(tick), class: "axis" }));
    svg.append(picture("text", { x: x(0) - 6, y: y(tick) + 5, "text-anchor": "end" }, String(tick).replace("-", "\u2212")));
  }
  for (const [points, kind] of curves) {
    const d = points.map(([a, b], i) => `${i ? "L" : "M"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join("");
    svg.append(picture("path", { d, class: `curve ${kind}` }));
  }
  svg.append(picture("circle", { cx: x(dot[0]), cy: y(dot[1]), r: 6, class: "now" }));
  svg.append(picture("text", { x: x(0.5), y: 206, "text-anchor": "middle" }, foot));
}

function render({ model, el }) {
  const names = ["source", "share", "gap", "dose"], start = maths.examples["a fooled judge"];
  const state = () => names.map((name, i) => model.get(name) ?? start[i]);
  const write = writer(model);
  const root = figure(model, "selfreward", STYLE);
  const examples = buttons(maths.examples, write, ([source, share, gap, dose]) => ({ source, share, gap, dose }));
  const menu = element("select", { className: "source-menu" });
  for (const [value, text] of Object.entries(maths.sources)) menu.append(element("option", { value, textContent: text }));
  menu.addEventListener("change", () => write({ source: menu.value }));
  const controls = {}, labels = element("div");
  labels.append(element("label", { className: "menu" }, "problems without a verifier are paid by", menu));
  for (const [name, text] of [
    ["share", "right completions at the start"],
    ["gap", "judge: yes to right \u2212 yes to wrong"],
    ["dose", "dose: problems with a verifier"],
  ]) {
    const slider = element("input", { type: "range", ...maths[name], className: `${name}-slider` });
    const output = element("output");
    slider.addEventListener("input", () => write({ [name]: Number(slider.value) }));
    labels.append(element("label", {}, text, slider, output));
    controls[name] = { slider, output };
  }
  const svg = picture("svg", { viewBox: "0 0 600 214", role: "img" });
  const said = element("p", { className: "said", role: "status" });
  root.append(examples, labels, svg, said);

  const draw = () => {
    const now = state(), [source, share, gap, dose] = now, found = maths.compute(...now), { say } = maths;
    menu.value = source;
    for (const [name, value] of [["share", share], ["gap", gap], ["dose", dose]]) {
      controls[name].slider.value = value;
      controls[name].output.textContent = say(value);
      controls[name].slider.setAttribute("aria-valuetext", say(value));
    }
    controls.gap.slider.disabled = source !== "judge";
    svg.replaceChildren();
    svg.setAttribute("aria-label", `share right from ${say(share)} to ${say(found.path.at(-1))}`);
    const at = Array.from({ length: 101 }, (_, i) => i / 100);
    const paid = at.map((p) => [p, maths.paid(source, p, gap, dose)]), own = at.map((p) => [p, maths.own(source, p, gap)]);
    panel(svg, 0, "a right one earns more by", "share of right completions", -1, 1, [[own, "own"], [paid, "paid"]],
      [share, found.paid]);
    panel(svg, 300, "share right, by step", `${maths.steps} steps`, 0, 1,
      [[found.path.map((p, i) => [i / maths.steps, p]), "path"]], [0, share]);
    said.textContent = maths.words(...now);
  };
  for (const name of names) model.on(`change:${name}`, draw);
  draw();
  el.append(root);
}

export default { render, maths };
