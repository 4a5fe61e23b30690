// The length explorer: set the lengths of a group's responses and who is right, choose what divides the sum over
// tokens, and see what one token and what a whole response weighs.
//
// One file for notebooks (anywidget) and for pages of the book, with nothing but the browser beneath it. What it
// computes is in `maths`, which the tests hold to the gradient of the library's loss.

import { buttons, element, figure, picture, reader, writer } from "./kit.mjs";

const EPS = 1e-4; // beside the standard deviation, as in the library

const maths = {
  // Where the length sliders stop.
  stops: [1, 2, 3, 5, 8, 10, 15, 20, 30, 50, 80, 100, 150, 200, 300, 500, 800, 1000],
  budgets: [1000, 2000, 4000, 8000],
  divisors: { own: "its own length (GRPO)", batch: "all tokens (token mean)", constant: "the budget (Dr. GRPO)" },

  // Rewards minus their mean; divided by the sample's standard deviation if `std`. Equal rewards give exactly 0.
  advantages: (rewards, std) => {
    const G = rewards.length, mean = rewards.reduce((a, b) => a + b, 0) / G;
    if (rewards.every((reward) => reward === rewards[0])) return rewards.map(() => 0);
    const spread = Math.sqrt(rewards.reduce((sum, r) => sum + (r - mean) ** 2, 0) / (G - 1));
    return rewards.map((reward) => (reward - mean) / (std ? spread + EPS : 1));
  },

  // What multiplies grad log pi before the first update: of one token of each response, and summed over the response.
  weights: (lengths, rewards, divisor, budget, std) => {
    const G = lengths.length, all = lengths.reduce((a, b) => a + b, 0);
    const advantages = maths.advantages(rewards, std);
    const token = advantages.map((a, i) => ({ own: a / (G * lengths[i]), batch: a / all, constant: a / (G * budget) })[divisor]);
    return { advantages, token, whole: token.map((weight, i) => weight * lengths[i]) };
  },

  examples: {
    "one long, wrong": [[20, 20, 20, 20, 20, 800], [1, 1, 0, 0, 0, 0]],
    "a short right one": [[5, 100, 100, 100, 200, 200], [1, 1, 1, 0, 0, 0]],
    "a long right one": [[10, 10, 10, 10, 20, 500], [0, 0, 0, 0, 0, 1]],
    "wrong from 1 to 1000": [[50, 1, 10, 100, 300, 1000], [1, 0, 0, 0, 0, 0]],
    "all alike": [[100, 100, 100, 100, 100, 100], [1, 1, 0, 0, 0, 0]],
  },

  nearest: (length) => maths.stops.reduce((best, stop, i) =>
    (Math.abs(Math.log(stop / length)) < Math.abs(Math.log(maths.stops[best] / length)) ? i : best), 0),

  // In thousandths, with two digits that count.
  say: (x) => {
    const size = Math.abs(1000 * x);
    const digits = size === 0 || size >= 99.5 ? 0 : Math.max(0, 1 - Math.floor(Math.log10(size)));
    const shown = size.toFixed(digits);
    return (x < 0 && Number(shown) !== 0 ? "\u2212" : "") + shown;
  },
  tokens: (n) => `${n} token${n === 1 ? "" : "s"}`,

  // What happened, in words.
  words: (lengths, rewards, divisor, budget, std) => {
    const { token, whole } = maths.weights(lengths, rewards, divisor, budget, std), { say, tokens } = maths;
    if (rewards.every((reward) => reward === rewards[0])) {
      return `All ${rewards.length} are ${rewards[0] ? "right" : "wrong"}: every advantage is 0, and no length matters.`;
    }
    const side = (reward, pays, name) => {
      const rows = lengths.map((_, i) => i).filter((i) => rewards[i] === reward);
      const short = rows.reduce((a, b) => (lengths[b] < lengths[a] ? b : a));
      const long = rows.reduce((a, b) => (lengths[b] > lengths[a] ? b : a));
      const times = Math.round((10 * lengths[long]) / lengths[short]) / 10;
      const price = (i) => say(Math.abs(token[i])), total = (i) => say(Math.abs(whole[i]));
      if (times === 1) {
        return `${rows.length === 1 ? `The ${name} response` : `Each ${name} response`} (${tokens(lengths[short])}) ${pays} ` +
          `${price(short)} a token, ${total(short)} in all. `;
      }
      if (divisor === "own") {
        return `Of the ${name} ones, the shortest (${tokens(lengths[short])}) ${pays} ${price(short)} a token and the ` +
          `longest (${lengths[long]}) ${price(long)}, ${times} times less. In all they ${pays.replace(/s$/, "")} the same, ` +
          `${total(long)}. `;
      }
      return `Every token of a ${name} response ${pays} ${price(short)}. In all the longest (${tokens(lengths[long])}) ` +
        `${pays} ${total(long)}, ${times} times what the shortest (${lengths[short]}) ${pays}. `;
    };
    const alike = lengths.every((n) => n === lengths[0]);
    const why = alike ? "Where all lengths agree, no divisor prefers anybody." : {
      own: "For a wrong response length is a discount, for a right one brevity is a bonus.",
      batch: "These prices change when any response of the batch changes its length.",
      constant: "These prices do not change when a response grows.",
    }[divisor];
    return side(0, "pays", "wrong") + side(1, "gets", "right") + why;
  },
};

const STYLE = `
.length-explorer label { display: inline-flex; flex-wrap: wrap; gap: 0.1rem 0.4rem; align-items: center; }
.length-explorer input[type=checkbox] { width: 1.1rem; height: 1.1rem; margin: 0; accent-color: #3b8fcf; }
.length-explorer .right { width: 3.4rem; } .length-explorer .length { width: 34%; }
.length-explorer .slide { display: flex; gap: 0.4rem; align-items: center; }
.length-explorer output { font-variant-numeric: tabular-nums; white-space: nowrap; min-width: 4ch; text-align: end; }
.length-explorer .bar { position: relative; }
.length-explorer .value { position: absolute; top: 0; line-height: 1.5rem; white-space: nowrap; font-variant-numeric: tabular-nums; font-size: 0.9em; }
.length-explorer .value.above { right: calc(50% + 0.3em); }
.length-explorer .value.below { left: calc(50% + 0.3em); }
.length-explorer svg { display: block; width: 100%; height: 1.5rem; }
.length-explorer svg line { stroke: currentColor; stroke-opacity: 0.5; }
@media (max-width: 480px) { .length-explorer { font-size: 0.8rem; } .length-explorer .said { min-height: 8.4em; } }
`;

// One bar from zero, relative to the largest of its column, and its number.
function bar(value, largest, label) {
  const half = 50, length = largest === 0 ? 0 : (Math.abs(value) / largest) * half;
  const svg = picture("svg", { viewBox: "0 0 100 20", preserveAspectRatio: "none", role: "img" });
  const shown = maths.say(value);
  svg.setAttribute("aria-label", `${label} ${shown} thousandths`);
  svg.append(
    picture("line", { x1: half, x2: half, y1: 0, y2: 20, "vector-effect": "non-scaling-stroke" }),
    picture("rect", { x: value < 0 ? half - length : half, y: 4, width: length, height: 12, class: value < 0 ? "down" : "up" }),
  );
  const side = value < 0 ? "value below" : "value above"; // the number stands where the bar does not
  const number = element("span", { className: side, textContent: shown });
  number.setAttribute("aria-hidden", "true"); // the bar has said it
  return element("div", { className: "bar" }, svg, number);
}

function render({ model, el }) {
  const read = reader(model);
  const write = writer(model);
  const [startLengths, startRewards] = maths.examples["one long, wrong"];
  const lengths = () => read("lengths", startLengths), rewards = () => read("rewards", startRewards);
  const state = () => [lengths(), rewards(), read("divisor", "own"), read("budget", 1000), read("std", false)];

  const root = figure(model, "length-explorer", STYLE);
  const examples = buttons(maths.examples, write, ([n, r]) => ({ lengths: [...n], rewards: [...r] }));
  const choice = (name, options, cast) => {
    const select = element("select", { className: name });
    for (const [value, text] of options) select.append(element("option", { value, textContent: text }));
    select.addEventListener("change", () => write({ [name]: cast(select.value) }));
    return select;
  };
  const divisor = choice("divisor", Object.entries(maths.divisors), String);
  const budget = choice("budget", maths.budgets.map((n) => [n, String(n)]), Number);
  const std = choice("std", [["no", "no"], ["yes", "yes"]], (value) => value === "yes");

  const head = element("tr", {}, element("th", { className: "right", textContent: "right?", scope: "col" }),
    element("th", { className: "length", textContent: "length, tokens", scope: "col" }));
  for (const title of ["one token weighs", "all of it weighs"]) head.append(element("th", { textContent: title, scope: "col" }));
  const body = element("tbody");
  const said = element("p", { className: "said", role: "status" });
  root.append(
    element("div", { className: "controls" }, examples,
      element("label", {}, "divide by ", divisor),
      element("label", {}, "budget ", budget),
      element("label", {}, "and the advantage by the std ", std)),
    element("table", {}, element("thead", {}, head), body),
    said,
  );

  // Rows are kept while their number stays: a slider that is being dragged must not be replaced under the hand.
  let rows = [];
  const build = (G) => {
    rows = Array.from({ length: G }, (_, i) => {
      const box = element("input", { type: "checkbox", className: "is-right" });
      box.setAttribute("aria-label", `response ${i + 1} is right`);
      box.addEventListener("change", () => {
        const changed = [...rewards()];
        changed[i] = box.checked ? 1 : 0;
        write({ rewards: changed });
      });
      const slider = element("input", { type: "range", min: 0, max: maths.stops.length - 1, step: 1, className: "length-slider" });
      slider.setAttribute("aria-label", `length of response ${i + 1}`);
      slider.addEventListener("input", () => {
        const changed = [...lengths()];
        changed[i] = maths.stops[Number(slider.value)];
        write({ lengths: changed });
      });
      const shown = element("output"), cells = [element("td"), element("td")];
      const row = element("tr", {}, element("td", {}, box),
        element("td", {}, element("div", { className: "slide" }, slider, shown)), ...cells);
      return { row, box, slider, shown, cells };
    });
    body.replaceChildren(...rows.map(({ row }) => row));
  };

  const draw = () => {
    const now = state(), [n, r] = now, found = maths.weights(...now);
    if (rows.length !== n.length) build(n.length);
    divisor.value = now[2];
    budget.value = String(now[3]);
    std.value = now[4] ? "yes" : "no";
    const largest = (values) => Math.max(...values.map(Math.abs));
    rows.forEach(({ box, slider, shown, cells }, i) => {
      box.checked = r[i] === 1;
      slider.value = maths.nearest(n[i]);
      slider.setAttribute("aria-valuetext", maths.tokens(n[i]));
      shown.textContent = String(n[i]);
      cells[0].replaceChildren(bar(found.token[i], largest(found.token), `one token of response ${i + 1} weighs`));
      cells[1].replaceChildren(bar(found.whole[i], largest(found.whole), `all of response ${i + 1} weighs`));
    });
    said.textContent = maths.words(...now) + " Numbers are thousandths; a minus pushes down.";
  };
  for (const name of ["lengths", "rewards", "divisor", "budget", "std"]) model.on(`change:${name}`, draw);
  draw();
  el.append(root);
}

export default { render, maths };
