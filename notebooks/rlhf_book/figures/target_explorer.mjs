// The target explorer: four completions of one prompt, and the policy at which a squared loss ends, with the constant that
// the derivation asks for and with the mean reward in its place.
//
// One file for notebooks (anywidget) and for pages of the book, with nothing but the browser beneath it. What it
// computes is in `maths`, which the tests hold to fits by gradient descent.

import { buttons, element, figure, picture, reader, writer } from "./kit.mjs";

const maths = {
  rewards: { min: 0, max: 1, step: 0.1 }, // of the sliders
  taus: [0.03, 0.1, 0.2, 0.3, 0.5, 1, 2, 5],

  examples: { // old probabilities, rewards
    "one in ten is right": [[0.1, 0.2, 0.3, 0.4], [1, 0, 0, 0]],
    "nine in ten are right": [[0.5, 0.3, 0.1, 0.1], [1, 1, 1, 0]],
    "graded": [[0.1, 0.2, 0.3, 0.4], [1, 0.7, 0.4, 0]],
    "all pay alike": [[0.1, 0.2, 0.3, 0.4], [1, 1, 1, 1]],
  },

  // The log-ratio l with tau l + kappa e^l = excess, by halving an interval.
  rest: (excess, tau, kappa) => {
    let low = -Math.abs(excess) / tau - 60, high = Math.abs(excess) / tau + 1;
    for (let n = 0; n < 100; n += 1) {
      const middle = (low + high) / 2;
      if (tau * middle + kappa * Math.exp(Math.min(middle, 600)) > excess) high = middle;
      else low = middle;
    }
    return low;
  },

  // Constants and ends: with tau log Z, and with the mean reward.
  compute: (old, rewards, tau) => {
    const sum = (numbers) => numbers.reduce((total, x) => total + x, 0);
    const mean = sum(old.map((q, i) => q * rewards[i])), top = Math.max(...rewards);
    const tilted = old.map((q, i) => q * Math.exp((rewards[i] - top) / tau)), z = sum(tilted);
    const constant = top + tau * Math.log(z), exact = tilted.map((x) => x / z);
    let low = 0, high = Math.max(...rewards.map((r) => r - mean)) + 1e-300;
    const ends = (kappa) => rewards.map((r) => maths.rest(r - mean, tau, kappa));
    for (let n = 0; n < 100; n += 1) {
      const kappa = (low + high) / 2, total = sum(ends(kappa).map((l, i) => old[i] * Math.exp(Math.min(l, 600))));
      if (total > 1) low = kappa;
      else high = kappa;
    }
    const found = ends((low + high) / 2).map((l, i) => old[i] * Math.exp(l)), all = sum(found);
    const fitted = found.map((x) => x / all);
    const worth = (p) => sum(p.map((x, i) => x * rewards[i]));
    return { constant, mean, gap: constant - mean, exact, fitted, before: mean, best: worth(exact), ended: worth(fitted) };
  },

  say: (x, digits = 3) => {
    const shown = Math.abs(x).toFixed(digits);
    return (x < 0 && Number(shown) !== 0 ? "\u2212" : "") + shown;
  },

  words: (old, rewards, tau) => {
    const found = maths.compute(old, rewards, tau), { say } = maths;
    if (Math.max(...rewards) - Math.min(...rewards) < 1e-9) {
      return "All completions pay alike: there is nothing to fit, both constants are equal, and the policy stays.";
    }
    const apart = Math.abs(found.best - found.ended) < 0.005
      ? "The two ends hardly differ." : "The mean reward holds the policy back.";
    return `Mean reward ${say(found.mean)}, \u03c4 log Z ${say(found.constant)}: the mean reward adds a pull to the old policy of weight ` +
      `${say(found.gap)}. Reward at the end: ${say(found.best)} with \u03c4 log Z, ${say(found.ended)} with the mean reward. ${apart}`;
  },
};

const STYLE = `
.target-explorer label { display: inline-flex; flex-wrap: wrap; gap: 0.1rem 0.4rem; align-items: center; }
.target-explorer table { width: 100%; table-layout: fixed; border-collapse: collapse; margin: 0 0 0.6rem; font-size: inherit; color: inherit; }
.target-explorer :is(th, td) { padding: 0.15rem 0.25rem; border: 0; background: none; font-weight: normal; text-align: start; }
.target-explorer .slide { display: flex; gap: 0.4rem; align-items: center; }
.target-explorer output, .target-explorer .number { font-variant-numeric: tabular-nums; white-space: nowrap; }
.target-explorer .tiny { width: 1.6rem; }
.target-explorer svg { display: block; width: 100%; height: 0.7rem; margin-top: 0.1rem; }
.target-explorer svg rect { fill: currentColor; fill-opacity: 0.45; }
.target-explorer .exact { fill: #3b8fcf; fill-opacity: 1; } .target-explorer .fitted { fill: #d9671e; fill-opacity: 1; }
@media (max-width: 480px) { .target-explorer { font-size: 0.78rem; } .target-explorer .said { min-height: 8.4em; } }
`;

const NAMES = ["A", "B", "C", "D"];

// A probability as a number and a bar.
function share(value, className, label) {
  const svg = picture("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", role: "img",
    "aria-label": `${label}: ${maths.say(value)}` }, picture("rect", { x: 0, y: 0, width: 100 * value, height: 10, class: className }));
  return element("td", { className: "number" }, element("span", { textContent: maths.say(value) }), svg);
}

function render({ model, el }) {
  const read = reader(model);
  const write = writer(model);
  const [startOld, startRewards] = maths.examples["one in ten is right"];
  const state = () => [read("old", startOld), read("rewards", startRewards), read("tau", 0.1)];

  const root = figure(model, "target-explorer", STYLE);
  const examples = buttons(maths.examples, write, ([old, rewards]) => ({ old: [...old], rewards: [...rewards] }));
  const tau = element("select", { className: "tau" });
  for (const value of maths.taus) tau.append(element("option", { value, textContent: value }));
  tau.addEventListener("change", () => write({ tau: Number(tau.value) }));

  const head = element("tr");
  for (const [text, className] of [["", "tiny"], ["reward", ""], ["old policy", ""], ["end with \u03c4 log Z", ""], ["end with the mean reward", ""]]) {
    head.append(element("th", { textContent: text, scope: "col", className }));
  }
  const body = element("tbody"), rows = NAMES.map((name, i) => {
    const slider = element("input", { type: "range", ...maths.rewards, className: "reward" }), output = element("output");
    slider.setAttribute("aria-label", `reward of completion ${name}`);
    slider.addEventListener("input", () => {
      const changed = [...state()[1]];
      changed[i] = Number(slider.value);
      write({ rewards: changed });
    });
    const row = element("tr", {}, element("th", { textContent: name, scope: "row" }),
      element("td", {}, element("div", { className: "slide" }, slider, output)));
    body.append(row);
    return { row, slider, output };
  });
  const said = element("p", { className: "said", role: "status" });
  root.append(
    element("div", { className: "controls" }, examples, element("label", {}, "\u03c4 ", tau)),
    element("table", {}, element("thead", {}, head), body),
    said,
  );

  const draw = () => {
    const now = state(), [old, rewards, temperature] = now, found = maths.compute(...now);
    tau.value = temperature;
    rows.forEach(({ row, slider, output }, i) => {
      slider.value = rewards[i];
      output.textContent = maths.say(rewards[i], 1);
      while (row.children.length > 2) row.lastChild.remove();
      row.append(share(old[i], "old", `${NAMES[i]} under the old policy`),
        share(found.exact[i], "exact", `${NAMES[i]} at the end with tau log Z`),
        share(found.fitted[i], "fitted", `${NAMES[i]} at the end with the mean reward`));
    });
    said.textContent = maths.words(...now);
  };
  for (const name of ["old", "rewards", "tau"]) model.on(`change:${name}`, draw);
  draw();
  el.append(root);
}

export default { render, maths };
