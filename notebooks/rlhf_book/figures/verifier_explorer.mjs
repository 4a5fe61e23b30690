// The verifier explorer: three kinds of completions, a verifier that errs in two ways, and what the expected update does.
//
// One file for notebooks (anywidget) and for pages of the book, with nothing but the browser beneath it. What it
// computes is in `maths`, which the tests hold to the library's advantages by listing groups.

import { buttons, element, figure, picture, reader, writer } from "./kit.mjs";

const maths = {
  size: 8, // completions of a group
  steps: 120,
  rate: 1, // of a step on the three logits
  kinds: ["right", "exploit", "other wrong"],
  rules: { mean: "reward minus the group's mean", zscore: "the same, divided by the group's spread (GRPO)" },
  sliders: { // per cent
    honest: { min: 1, max: 60, text: "right at the start" }, exploit: { min: 0, max: 39, text: "exploit at the start" },
    passes: { min: 0, max: 100, text: "exploit passes" }, accepts: { min: 0, max: 60, text: "other wrong ones pass, by lot" },
    rejects: { min: 0, max: 60, text: "right ones fail, by lot" },
  },
  examples: { // honest, exploit, passes, accepts, rejects
    "a hole": [18, 30, 100, 0, 0], "as many, by lot": [18, 30, 37, 37, 0], "errors both ways": [18, 30, 30, 30, 30],
    "mended": [18, 30, 0, 0, 0], "a rare exploit": [18, 1, 100, 0, 15],
  },

  // A group's advantage of 1 minus that of 0, in the mean over what the others get; each passes with chance q.
  slope: (q, rule, size = maths.size) => {
    if (rule === "mean") return (size - 1) / size;
    const spread = (m) => Math.sqrt((m * (size - m)) / (size * (size - 1)));
    let total = 0, ways = 1;
    for (let k = 0; k < size; k += 1) { // of the others pass
      const passed = k + 1 < size ? (1 - (k + 1) / size) / spread(k + 1) : 0;
      const failed = k > 0 ? -(k / size) / spread(k) : 0;
      total += ways * q ** k * (1 - q) ** (size - 1 - k) * (passed - failed);
      ways = (ways * (size - 1 - k)) / (k + 1);
    }
    return total;
  },

  chances: (passes, accepts, rejects) => [1 - rejects / 100, passes / 100, accepts / 100],
  shares: (honest, exploit) => [honest / 100, exploit / 100, 1 - (honest + exploit) / 100],
  reward: (shares, chances) => shares.reduce((sum, p, i) => sum + p * chances[i], 0),

  // The expected change of each kind's logit: the policy gradient of the pass rate, times the slope.
  push: (shares, chances, rule, size = maths.size) => {
    const q = maths.reward(shares, chances), slope = maths.slope(q, rule, size);
    return shares.map((p, i) => slope * p * (chances[i] - q));
  },

  // Shares after each of the steps.
  path: (shares, chances, rule) => {
    const found = [shares];
    let now = shares;
    for (let n = 0; n < maths.steps; n += 1) {
      const push = maths.push(now, chances, rule), grown = now.map((p, i) => p * Math.exp(maths.rate * push[i]));
      const all = grown.reduce((sum, p) => sum + p, 0);
      now = grown.map((p) => p / all);
      found.push(now);
    }
    return found;
  },

  compute: (honest, exploit, passes, accepts, rejects, rule) => {
    const shares = maths.shares(honest, exploit), chances = maths.chances(passes, accepts, rejects);
    const path = maths.path(shares, chances, rule), wrong = shares[1] + shares[2];
    return {
      shares, chances, path, push: maths.push(shares, chances, rule),
      rewards: path.map((p) => maths.reward(p, chances)),
      falsePositives: (shares[1] * chances[1] + shares[2] * chances[2]) / wrong,
    };
  },

  say: (x, digits = 2) => {
    const shown = Math.abs(x).toFixed(digits);
    return (x < 0 && Number(shown) !== 0 ? "\u2212" : "") + shown;
  },

  words: (...given) => {
    const found = maths.compute(...given), { say } = maths, end = found.path[maths.steps];
    const before = found.rewards[0], after = found.rewards[maths.steps], right = [found.shares[0], end[0]];
    const rose = (x) => (x > 0.02 ? "rises" : x < -0.02 ? "falls" : "stays");
    const gains = after - before, learns = right[1] - right[0];
    const verdict = gains > 0.02 && learns < -0.02 ? " The reward rises while the policy gets worse: it learns the hole."
      : end[1] > found.shares[1] + 0.02 && learns > 0.02 ? " Right completions and the exploit both gain, at the others' cost."
        : gains < 0.02 && learns < 0.02 ? " Hardly anything moves." : "";
    const reversed = found.chances[0] < Math.max(found.chances[1], found.chances[2]) - 1e-9
      ? " A wrong kind passes more often than a right completion: followed for long enough, it wins." : "";
    return `${Math.round(100 * found.falsePositives)} % of the wrong completions pass at the start. After ${maths.steps} steps the reward ` +
      `${rose(gains)} (${say(before)} to ${say(after)}), the share of right ones ${rose(learns)} (${say(right[0])} to ` +
      `${say(right[1])}).${verdict}${reversed}`;
  },
};

const STYLE = `
.verifier-explorer :is(button, select) { font: inherit; color: inherit; background: transparent; padding: 0.15rem 0.5rem;
  border: 1px solid currentColor; border-radius: 0.3rem; cursor: pointer; min-height: 1.75rem; max-width: 100%; min-width: 0; text-overflow: ellipsis; }
.verifier-explorer .sliders { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: 0.4rem 1rem; width: 100%; }
.verifier-explorer label { display: flex; flex-wrap: wrap; gap: 0.1rem 0.4rem; align-items: center; max-width: 100%; min-width: 0; }
.verifier-explorer output, .verifier-explorer .number { font-variant-numeric: tabular-nums; white-space: nowrap; }
.verifier-explorer table { width: 100%; table-layout: fixed; border-collapse: collapse; margin: 0 0 0.6rem; font-size: inherit; color: inherit; }
.verifier-explorer :is(th, td) { padding: 0.15rem 0.25rem; border: 0; background: none; font-weight: normal; text-align: start; overflow-wrap: anywhere; }
.verifier-explorer thead th { vertical-align: bottom; font-size: 0.85em; font-weight: 600; }
.verifier-explorer .up { border-bottom: 0.25rem solid #3b8fcf; } .verifier-explorer .down { border-bottom: 0.25rem solid #d9671e; }
.verifier-explorer svg { display: block; width: 100%; height: auto; margin: 0.4rem 0 0; }
.verifier-explorer svg text { fill: currentColor; font-size: 11px; }
.verifier-explorer svg path { fill: none; stroke: currentColor; stroke-width: 2; }
.verifier-explorer path.axis { stroke-width: 1; stroke-opacity: 0.5; }
.verifier-explorer path.reward { stroke-dasharray: 6 4; }
.verifier-explorer path.right { stroke: #3b8fcf; stroke-width: 3; } .verifier-explorer path.hole { stroke: #d9671e; stroke-dasharray: 2 3; stroke-width: 3; }
.verifier-explorer .said { margin: 0.6rem 0 0; min-height: 7em; }
@media (max-width: 480px) { .verifier-explorer { font-size: 0.8rem; } .verifier-explorer .said { min-height: 9.8em; }
  .verifier-explorer svg text { font-size: 16px; } }
`;

const WIDTH = 460, HEIGHT = 190, LEFT = 34, BOTTOM = 24, TOP = 10;

function render({ model, el }) {
  const names = Object.keys(maths.sliders), first = maths.examples["a hole"];
  const read = reader(model);
  const write = writer(model);
  const state = () => [...names.map((name, i) => read(name, first[i])), read("rule", "mean")];

  const root = figure(model, "verifier-explorer", STYLE);
  const examples = buttons(maths.examples, write, (values) => Object.fromEntries(names.map((n, i) => [n, values[i]])));
  const rule = element("select", { className: "rule" });
  for (const [value, text] of Object.entries(maths.rules)) rule.append(element("option", { value, textContent: text }));
  rule.addEventListener("change", () => write({ rule: rule.value }));

  const sliders = names.map((name) => {
    const { min, max, text } = maths.sliders[name], output = element("output");
    const input = element("input", { type: "range", min, max, step: 1, className: name });
    input.setAttribute("aria-label", `${text}, per cent`);
    input.addEventListener("input", () => write({ [name]: Number(input.value) }));
    return { input, output, label: element("label", {}, `${text} `, output, input) };
  });
  const head = element("tr");
  for (const text of ["kind", "share at the start", "passes with chance", "push on its logit", "share at the end"]) {
    head.append(element("th", { textContent: text, scope: "col" }));
  }
  const body = element("tbody"), chart = picture("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
  const said = element("p", { className: "said", role: "status" });
  root.append(
    element("div", { className: "controls" }, examples, element("label", {}, "advantage: ", rule),
      element("div", { className: "sliders" }, ...sliders.map(({ label }) => label))),
    element("table", {}, element("thead", {}, head), body), chart, said,
  );

  const draw = () => {
    const now = state(), found = maths.compute(...now), { say } = maths, end = found.path[maths.steps];
    rule.value = now[5];
    sliders.forEach(({ input, output }, i) => { input.value = now[i]; output.textContent = `${now[i]} %`; });
    body.replaceChildren(...maths.kinds.map((kind, i) => {
      const push = found.push[i], sign = Math.abs(push) < 5e-4 ? "" : push > 0 ? "up" : "down";
      return element("tr", {}, element("th", { textContent: kind, scope: "row" }),
        element("td", { className: "number", textContent: say(found.shares[i]) }),
        element("td", { className: "number", textContent: say(found.chances[i]) }),
        element("td", { className: "number" },
          element("span", { className: sign, textContent: `${push > 5e-4 ? "+" : ""}${say(push, 3)}` })),
        element("td", { className: "number", textContent: say(end[i]) }));
    }));
    const x = (n) => LEFT + ((WIDTH - LEFT - 6) * n) / maths.steps, y = (v) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - v);
    const line = (values) => values.map((v, n) => `${n ? "L" : "M"}${x(n).toFixed(1)},${y(v).toFixed(1)}`).join("");
    chart.setAttribute("aria-label", `Over ${maths.steps} steps: reward ${say(found.rewards[0])} to ${say(found.rewards[maths.steps])}, ` +
      `right ${say(found.shares[0])} to ${say(end[0])}, exploit ${say(found.shares[1])} to ${say(end[1])}`);
    chart.replaceChildren(
      picture("path", { class: "axis", d: `M${x(0)},${y(1)}L${x(0)},${y(0)}L${x(maths.steps)},${y(0)}` }),
      picture("text", { x: LEFT - 6, y: y(1) + 8, "text-anchor": "end" }, "1"),
      picture("text", { x: LEFT - 6, y: y(0), "text-anchor": "end" }, "0"),
      picture("text", { x: (WIDTH + LEFT) / 2, y: HEIGHT - 5, "text-anchor": "middle" }, "steps; reward - - -   right \u2014   exploit \u00b7\u00b7\u00b7"),
      picture("path", { class: "line reward", d: line(found.rewards) }),
      picture("path", { class: "line hole", d: line(found.path.map((p) => p[1])) }),
      picture("path", { class: "line right", d: line(found.path.map((p) => p[0])) }),
    );
    said.textContent = maths.words(...now);
  };
  for (const name of [...names, "rule"]) model.on(`change:${name}`, draw);
  draw();
  el.append(root);
}

export default { render, maths };
