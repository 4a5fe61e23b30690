// The group explorer: move the rewards of a group, and see what three ways of comparing make of them.
//
// One file for notebooks (anywidget) and for pages of the book, with nothing but the browser beneath it. What it
// computes is in `maths`, which the tests hold to the Python functions of the library.

import { element, figure, picture, reader, writer } from "./kit.mjs";

const LOWEST = 0, HIGHEST = 2, STEP = 0.05; // of a reward
const REACH = 4; // the bars' scale, from -REACH to REACH: a z-score in a group of 16 is at most 3.75

const maths = {
  mean: (x) => x.reduce((sum, value) => sum + value, 0) / x.length,

  // Divided by G - ddof: ddof 1 is the sample's standard deviation, ddof 0 the population's.
  std: (x, ddof) => {
    const mean = maths.mean(x);
    return Math.sqrt(x.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (x.length - ddof));
  },

  // Equal rewards are found by comparing them: the mean of equal numbers need not be that number.
  advantages: (rewards, eps, ddof) => {
    const mean = maths.mean(rewards), G = rewards.length;
    const dead = rewards.every((reward) => reward === rewards[0]);
    const std = dead ? 0 : maths.std(rewards, ddof);
    const centred = rewards.map((reward) => (dead ? 0 : reward - mean));
    return {
      mean, std, dead, centred,
      zscore: centred.map((a) => (dead ? 0 : a / (std + eps))),
      leaveOneOut: centred.map((a) => (a * G) / (G - 1)),
    };
  },

  // The presets, for any size of group.
  preset: (name, G) => {
    const each = (value) => Array.from({ length: G }, (_, i) => maths.snap(value(i)));
    return {
      "one right": () => each((i) => (i === 0 ? 1 : 0)),
      "half right": () => each((i) => (i < Math.floor(G / 2) ? 1 : 0)),
      "continuous": () => each((i) => 0.2 + (0.65 * ((i * 5) % G)) / Math.max(G - 1, 1)),
      "outlier": () => each((i) => (i === 0 ? 2 : 0.4 + 0.05 * (i % 3))),
      "nearly equal": () => each((i) => (i === 0 ? 0.75 : 0.7)),
      "all equal": () => each(() => 0.7),
    }[name]();
  },

  snap: (value) => Number(Math.min(HIGHEST, Math.max(LOWEST, Math.round(value / STEP) * STEP)).toFixed(2)),

  // What happened, in words.
  words: (rewards, eps, ddof) => {
    const { mean, std, dead, zscore } = maths.advantages(rewards, eps, ddof);
    const G = rewards.length, say = (x) => x.toFixed(2).replace("-", "\u2212");
    if (dead) {
      return `All ${G} rewards are ${say(rewards[0])}. Nobody did better than anybody: every advantage is 0, ` +
        "and the group teaches nothing.";
    }
    const facts = `Mean ${say(mean)}, standard deviation ${say(std)}. `;
    const k = rewards.filter((reward) => reward === 1).length;
    const far = zscore.reduce((best, z, i) => (Math.abs(z) > Math.abs(zscore[best]) ? i : best), 0);
    if (rewards.every((reward) => reward === 0 || reward === 1)) {
      const at = (value) => say(zscore[rewards.indexOf(value)]);
      return facts + `${k} of ${G} right: a right completion gets ${at(1)}, a wrong one ${at(0)}.`;
    }
    if (G === 2) return facts + "In a group of two the z-score says who won and not by how much.";
    if (std < 0.05) {
      return facts + "The rewards differ by little. The z-score makes these small differences as large as any; the " +
        "other two leave them small.";
    }
    if (Math.abs(zscore[far]) > 2) {
      return facts + `Completion ${far + 1} stands ${say(Math.abs(zscore[far]))} standard deviations from the mean. ` +
        "It stretches the scale, and the differences among the others shrink.";
    }
    return facts + `The z-score multiplies the centred rewards by ${say(1 / (std + eps))}, ` +
      `leaving one out by ${say(G / (G - 1))}.`;
  },
};

const STYLE = `
.group-explorer .presets { display: flex; flex-wrap: wrap; gap: 0.3rem; border: 0; margin: 0; padding: 0; }
.group-explorer table { width: 100%; table-layout: fixed; border-collapse: collapse; margin: 0; font-size: inherit;
  color: inherit; }
.group-explorer tbody th { text-align: end; }
.group-explorer .number { width: 1.6rem; } .group-explorer .reward { width: 28%; }
.group-explorer .slide { display: flex; gap: 0.4rem; align-items: center; }
.group-explorer .bar { position: relative; }
.group-explorer .value { position: absolute; top: 0; line-height: 1.5rem; white-space: nowrap; font-variant-numeric: tabular-nums; font-size: 0.9em; }
.group-explorer .value.above { right: calc(50% + 0.3em); }
.group-explorer .value.below { left: min(50% + 0.3em, 100% - 3.2em); }
.group-explorer svg { display: block; width: 100%; height: 1.5rem; }
.group-explorer svg line { stroke: currentColor; stroke-opacity: 0.5; }
.group-explorer .said { margin: 0.6rem 0 0; min-height: 4.2em; }
@media (max-width: 480px) { .group-explorer { font-size: 0.8rem; } .group-explorer .reward { width: 30%; } }
`;

const COLUMNS = [
  ["zscore", "z-score (GRPO)"],
  ["centred", "centred (Dr. GRPO)"],
  ["leaveOneOut", "leave one out (RLOO)"],
];
const PRESETS = ["one right", "half right", "continuous", "outlier", "nearly equal", "all equal"];

// One bar from zero, and its number.
function bar(value, label) {
  const half = 50, length = (Math.min(Math.abs(value), REACH) / REACH) * half;
  const svg = picture("svg", { viewBox: "0 0 100 20", preserveAspectRatio: "none", role: "img" });
  const shown = value.toFixed(2).replace(/^-(0\.00)$/, "$1");
  svg.setAttribute("aria-label", `${label} ${shown}`);
  svg.append(
    picture("line", { x1: half, x2: half, y1: 0, y2: 20, "vector-effect": "non-scaling-stroke" }),
    picture("rect", { x: value < 0 ? half - length : half, y: 4, width: length, height: 12, class: value < 0 ? "down" : "up" }),
  );
  const side = value < 0 ? "value below" : "value above"; // the number stands where the bar does not
  const number = element("span", { className: side, textContent: shown.replace("-", "\u2212") });
  number.setAttribute("aria-hidden", "true"); // the bar has said it
  return element("div", { className: "bar" }, svg, number);
}

function render({ model, el }) {
  const read = reader(model);
  const rewards = () => read("rewards", maths.preset("one right", 8));
  const write = writer(model);

  const root = figure(model, "group-explorer", STYLE);

  const presets = element("div", { className: "presets", role: "group" });
  presets.setAttribute("aria-label", "examples");
  for (const name of PRESETS) {
    const button = element("button", { type: "button", textContent: name });
    button.addEventListener("click", () => write({ rewards: maths.preset(name, rewards().length) }));
    presets.append(button);
  }

  const size = element("input", { type: "range", min: 2, max: 16, step: 1, className: "size" });
  const sizeShown = element("output");
  size.addEventListener("input", () => {
    const now = rewards(), G = Number(size.value);
    // A larger group repeats what is there, so that an example stays what it was.
    write({ rewards: Array.from({ length: G }, (_, i) => now[i] ?? now[now.length - 1]) });
  });
  const choice = (name, options, otherwise) => {
    const select = element("select", { className: name });
    for (const [value, text] of options) select.append(element("option", { value, textContent: text }));
    select.addEventListener("change", () => write({ [name]: Number(select.value) }));
    return { select, show: () => { select.value = String(read(name, otherwise)); } };
  };
  const eps = choice("eps", [[1e-8, "1e-8"], [1e-6, "1e-6"], [0.0001, "1e-4"], [0.01, "0.01"], [0.1, "0.1"]], 0.0001);
  const ddof = choice("ddof", [[1, "G \u2212 1 (sample)"], [0, "G (population)"]], 1);

  const head = element("tr", {}, element("th", { className: "number", textContent: "" }),
    element("th", { className: "reward", textContent: "reward" }));
  for (const [, title] of COLUMNS) head.append(element("th", { textContent: title, scope: "col" }));
  const body = element("tbody");
  const said = element("p", { className: "said", role: "status" });
  root.append(
    element("div", { className: "controls" }, presets,
      element("label", {}, "G ", size, sizeShown),
      element("label", {}, "\u03b5 ", eps.select),
      element("label", {}, "divide by ", ddof.select)),
    element("table", {}, element("thead", {}, head), body),
    said,
  );

  // Rows are kept while the size stays: a slider that is being dragged must not be replaced under the hand.
  let rows = [];
  const build = (G) => {
    rows = Array.from({ length: G }, (_, i) => {
      const slider = element("input", { type: "range", min: LOWEST, max: HIGHEST, step: STEP, className: "reward-slider" });
      slider.setAttribute("aria-label", `reward of completion ${i + 1}`);
      const shown = element("output");
      slider.addEventListener("input", () => {
        const changed = [...rewards()];
        changed[i] = maths.snap(Number(slider.value));
        write({ rewards: changed });
      });
      const cells = COLUMNS.map(() => element("td"));
      const row = element("tr", {}, element("th", { scope: "row", textContent: String(i + 1) }),
        element("td", {}, element("div", { className: "slide" }, slider, shown)), ...cells);
      return { row, slider, shown, cells };
    });
    body.replaceChildren(...rows.map(({ row }) => row));
  };

  const draw = () => {
    const now = rewards();
    if (rows.length !== now.length) build(now.length);
    size.value = now.length;
    sizeShown.textContent = String(now.length);
    eps.show();
    ddof.show();
    const computed = maths.advantages(now, read("eps", 0.0001), read("ddof", 1));
    rows.forEach(({ slider, shown, cells }, i) => {
      slider.value = now[i];
      shown.textContent = now[i].toFixed(2);
      COLUMNS.forEach(([name, title], c) => cells[c].replaceChildren(bar(computed[name][i], title)));
    });
    said.textContent = maths.words(now, read("eps", 0.0001), read("ddof", 1));
  };
  for (const name of ["rewards", "eps", "ddof"]) model.on(`change:${name}`, draw);
  draw();
  el.append(root);
}

export default { render, maths };
