// The group strip: the rewards of a group as dots, their mean and standard deviation, and a line from each dot down to its
// advantage. What the formula of GRPO does is what the lines do: they are shifted by the mean and spread by 1/s.
//
// One file for notebooks (anywidget) and for pages of the book, with nothing but the browser beneath it. What it
// computes is in `maths`, which the tests hold to the Python functions of the library.

import { buttons, canvas, choice, element, figure, handle, picture, reader, say, writer } from "./kit.mjs";

const EPS = 1e-4; // beside the standard deviation, as in the library
const STEP = 0.05, REACH = 4; // of a reward; a z-score in a group of 16 is at most 3.75
const HEIGHT = 268, TOP = 104, BOTTOM = 204; // of the drawing, of the axis of rewards, of that of advantages

const maths = {
  scales: { std: "divided by s (GRPO)", none: "not divided (Dr. GRPO)" },

  // Equal rewards are found by comparing them: the mean of equal numbers need not be that number.
  advantages: (rewards, scale) => {
    const G = rewards.length, mean = rewards.reduce((a, b) => a + b, 0) / G;
    const std = Math.sqrt(rewards.reduce((sum, r) => sum + (r - mean) ** 2, 0) / (G - 1));
    if (rewards.every((r) => r === rewards[0])) return { mean: rewards[0], std: 0, dead: true, advantages: rewards.map(() => 0) };
    return { mean, std, dead: false, advantages: rewards.map((r) => (r - mean) / (scale === "std" ? std + EPS : 1)) };
  },

  examples: {
    "1 of 8 right": [0, 0, 0, 1, 0, 0, 0, 0],
    "4 of 8": [0, 1, 0, 1, 1, 0, 0, 1],
    "7 of 8": [1, 1, 1, 1, 0, 1, 1, 1],
    "parts of a reward": [0.2, 0.9, 0.4, 0.6, 0.3, 0.8, 0.1, 0.5],
    "nearly equal": [0.7, 0.7, 0.75, 0.7, 0.7, 0.7, 0.7, 0.7],
    "all equal": [0.7, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7],
  },

  signed: (x) => (x > 0 ? "+" : "") + say(x),

  // What happened, in words.
  words: (rewards, scale) => {
    const { mean, std, dead, advantages } = maths.advantages(rewards, scale), G = rewards.length, { signed } = maths;
    if (dead) return `All ${G} rewards are ${say(rewards[0])}. Nobody did better than anybody: every advantage is 0, and the group teaches nothing.`;
    const facts = `Mean ${say(mean)}, standard deviation s = ${say(std)}. `;
    const right = rewards.filter((r) => r === 1).length, at = (reward) => advantages[rewards.indexOf(reward)];
    if (rewards.every((r) => r === 0 || r === 1)) {
      const who = `${right} of ${G} right: a right completion gets ${signed(at(1))}, a wrong one ${signed(at(0))}. `;
      const rare = Math.min(right, G - right);
      const why = scale === "none" ? "Without the division an advantage is never larger than 1."
        : rare === G / 2 ? "Both sides are pushed alike." : `The rarer outcome is pushed ${Number((G / rare - 1).toFixed(1))} times as hard.`;
      return facts + who + why;
    }
    const best = Math.max(...advantages), worst = Math.min(...advantages);
    const ends = `The best completion gets ${signed(best)}, the worst ${signed(worst)}. `;
    if (scale === "none") return facts + ends + "The distances between the dots stay what they were.";
    return facts + ends + (std < 0.05 ? "The rewards differ by little, and the division by s makes that as large as any difference."
      : `The division by s spreads the dots ${say(1 / (std + EPS), 1)} times as far apart.`);
  },
};

const STYLE = `
.group-strip svg text { fill: currentColor; font-size: 13px; } .group-strip svg .small { font-size: 12px; }
.group-strip svg .mean { stroke: currentColor; stroke-width: 2; }
.group-strip .up { stroke: #3b8fcf; } .group-strip .down { stroke: #d9671e; } .group-strip .zero { fill: currentColor; stroke: currentColor; }
.group-strip line { stroke-opacity: 0.7; stroke-width: 1.5; } .group-strip circle { stroke: none; } .group-strip .handle .hit { fill: transparent; }
.group-strip .said { min-height: 4.2em; }
@media (max-width: 480px) { .group-strip .said { min-height: 5.6em; } }
`;

function render({ model, el }) {
  const read = reader(model), write = writer(model);
  const rewards = () => read("rewards", maths.examples["1 of 8 right"]), scale = () => read("scale", "std");

  const root = figure(model, "group-strip", STYLE);
  const examples = buttons(maths.examples, write, (values) => ({ rewards: [...values] }));
  const [scales, press] = choice("scale", maths.scales, (value) => write({ scale: value }));
  const said = element("p", { className: "said", role: "status" });
  el.append(root);
  const [svg, width, fit] = canvas(root, HEIGHT, () => draw());
  const back = picture("g", { "aria-hidden": "true" });
  svg.setAttribute("aria-label", "rewards above, advantages below");
  root.append(element("div", { className: "controls" }, examples, scales), svg, said);
  svg.append(back);

  const LEFT = 16, across = (part) => LEFT + part * (width() - 2 * LEFT);
  const topAt = (reward) => across(reward), lowAt = (a) => across((a + REACH) / (2 * REACH));

  // The dots are made anew when their number changes, and never while one is held.
  let dots = [];
  const build = (G) => {
    for (const dot of dots) dot.remove();
    dots = Array.from({ length: G }, (_, i) => handle(svg, `reward of completion ${i + 1}`, { min: 0, max: 1, step: STEP }, {
      value: () => rewards()[i],
      moved: (value) => write({ rewards: rewards().map((old, j) => (j === i ? value : old)) }),
      at: ({ x }) => (x - LEFT) / (width() - 2 * LEFT),
    }, picture("circle", { class: "hit", r: 12 }), picture("circle", { class: "dot", r: 5.5 })));
  };

  function draw() {
    const now = rewards(), { mean, std, dead, advantages } = maths.advantages(now, scale());
    if (dots.length !== now.length) build(now.length);
    press(scale());
    back.replaceChildren();
    const line = (x1, y1, x2, y2, kind) => back.append(picture("line", { x1, y1, x2, y2, class: kind }));
    const text = (x, y, words, kind = "", anchor = "middle") =>
      back.append(picture("text", { x, y, "text-anchor": anchor, class: kind }, words));
    const from = topAt(Math.max(0, mean - std)), to = topAt(Math.min(1, mean + std));
    back.append(picture("rect", { class: "band", x: from, y: 22, width: to - from, height: TOP - 22 }));
    text(LEFT, 12, "reward", "", "start");
    line(topAt(mean), 18, topAt(mean), TOP, "mean");
    const side = mean > 0.6 ? "end" : "start";
    text(topAt(mean) + (side === "end" ? -5 : 5), 34, `mean ${say(mean)}${dead ? "" : ", s either way"}`, "small", side);
    line(LEFT, TOP, width() - LEFT, TOP, "edge");
    for (const tick of [0, 0.5, 1]) text(topAt(tick), TOP + 16, say(tick, tick === 0.5 ? 1 : 0), "small");
    line(LEFT, BOTTOM, width() - LEFT, BOTTOM, "edge");
    line(lowAt(0), BOTTOM - 6, lowAt(0), BOTTOM + 6, "mean");
    for (const tick of [-3, -2, -1, 0, 1, 2, 3]) text(lowAt(tick), HEIGHT - 20, say(tick, 0), "small");
    text(LEFT, HEIGHT - 3, scale() === "std" ? "advantage A, in standard deviations" : "advantage A, in units of the reward", "", "start");
    const above = new Map(), below = new Map();
    const stacked = (seen, key) => { seen.set(key, (seen.get(key) ?? -1) + 1); return seen.get(key); };
    const gap = Math.min(12, 66 / now.length * 1.2);
    now.forEach((reward, i) => {
      const a = advantages[i], kind = a > 0 ? "up" : a < 0 ? "down" : "zero";
      const y = TOP - 8 - gap * stacked(above, reward), low = BOTTOM + 3 + Math.min(gap, 4) * stacked(below, reward);
      line(topAt(reward), TOP + 1, lowAt(a), BOTTOM - 3, kind);
      back.append(picture("circle", { cx: lowAt(a), cy: low, r: 4, class: kind }));
      dots[i].setAttribute("transform", `translate(${topAt(reward)} ${y})`);
      dots[i].querySelector(".dot").setAttribute("class", `dot ${kind}`);
      dots[i].setAttribute("aria-valuenow", reward);
      dots[i].setAttribute("aria-valuetext", `reward ${say(reward)}, advantage ${maths.signed(a)}`);
    });
    for (const reward of new Set(now)) { // one number at the end of each line
      const a = advantages[now.indexOf(reward)], n = now.filter((r) => r === reward).length;
      const left = lowAt(a) < topAt(reward); // the side on which its line does not come
      if (new Set(now).size <= 2) text(lowAt(a) + (left ? -7 : 7), BOTTOM - 9, `${n > 1 ? `${n} \u00d7 ` : ""}${maths.signed(a)}`, "small", left ? "end" : "start");
    }
    said.textContent = maths.words(now, scale());
  }
  for (const name of ["rewards", "scale"]) model.on(`change:${name}`, draw);
  fit();
}

export default { render, maths };
