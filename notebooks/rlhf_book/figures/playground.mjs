// The playground: a language model learns by reinforcement learning in the page, and one sees how.
//
// This file is the page; the engine (engine/*.js) arrives as text and runs as a worker, since a page opened from disk may
// load no other file. Rows, lines of code and challenges are data: engine/*.json. With `small` it is the front page's
// figure: two arms, one curve. What can be computed without a page is in `maths`.

const MINUS = "\u2212", END = "$";
const MOST_ARMS = 4, BEGIN = "#play=";

// ---- what can be set of an arm: [name, label, values], a value with its words where they differ ----

const FIELDS = [
  ["row", "Algorithm (a row of the table)", null],
  ["lr", "Learning rate", ["1e-4", "2e-4", "4e-4", "8e-4", "1.6e-3", "3.2e-3"]],
  ["updates", "Updates on a batch", ["1", "2", "4", "8", "16"]],
  ["low", "Bound below 1", ["0.0003", "0.003", "0.03", "0.1", "0.2", "0.4", "none"]],
  ["high", "Bound above 1", ["0.0004", "0.003", "0.03", "0.1", "0.2", "0.28", "0.4", "none"]],
  ["prompts", "Prompts a step", ["4", "8", "16", "32"]],
  ["group", "Group size", ["2", "4", "8", "16"]],
  ["verdict", "Rewarded is", [
    ["checked", "the right answer"], ["noisy", "the right answer, but the checker errs once in ten"],
    ["form", "four digits and an end, right or wrong"], ["coin", "what a coin decides"],
  ]],
  ["values", "Rewards", [["0/1", "0 and 1"], ["-1/0", `${MINUS}1 and 0`], ["10/11", "10 and 11"]]],
  ["kl", "KL penalty", ["0", "0.01", "0.04", "0.1", "0.3", "1"]],
  ["seed", "First seed", null],
  ["seeds", "Seeds", ["1", "2", "3", "4", "5"]],
];
const MEANINGS = [
  ["Arm", "one choice of settings; up to four are trained beside each other."],
  ["Algorithm", "who gets the credit, how far a step may go, who counts how much: a row of the book's table."],
  ["Learning rate", "the size of a step."],
  ["Updates on a batch", "how many steps are taken on the same completions. From the second on the model is no longer the one that wrote them."],
  ["Bounds", "how far a token's probability may move away from what it was, as a ratio, before a push further away is stopped; a push back is not. PPO's clip is two of them."],
  ["Prompts a step, group size", "how many questions a step asks, and how many completions it samples of each: those of one question are a group."],
  ["Baseline", "what is taken off a reward, often the group's mean; what is left is the completion's advantage."],
  ["Rewarded is", "what earns the higher of the two rewards."],
  ["KL penalty", "how strongly the model is held near its start."],
  ["Push", "how much an update asks for more of a token: the slope of the objective in its log-prob, times the number of completions in the batch. In the tree the pushes of completions that share the token are added up. A token that is nearly certain hardly moves, however hard it is pushed."],
  ["Seeds", "repetitions with other questions and other samples; the first seed says which."],
];
const OWN = ["updates", "low", "high"]; // "" stands for the row's own
const DEFAULT = {
  row: "grpo", lr: "8e-4", updates: "", low: "", high: "", prompts: "16", group: "16", verdict: "checked", values: "0/1",
  kl: "0", seed: "0", seeds: "1",
};
const LIMITS = ["60", "120", "240"], LIMIT = "120";
const SPEEDS = [["0", "as fast as it can"], ["10", "10 steps a second"], ["2", "2 steps a second"]];

const percent = (x) => `${Math.round(100 * x)} %`;
const number = (x) => (Math.abs(x) >= 100 ? x.toFixed(0) : x.toFixed(2)).replace("-", MINUS);
// Key, title, words of the axis, the smallest axis, how a value is written.
const MEASURES = [
  ["right", "Right answers", "share of right completions among the step's samples", 1, percent],
  ["greedy", "Greedy, held out", "share of 64 held-out questions answered right, greedily", 1, percent],
  ["entropy", "Entropy", "entropy of the next token, in nats", 0.3, number],
  ["clipped", "Beyond a bound", "share of tokens beyond their bound, in the last update of a step", 0.1, percent],
  ["norm", "Gradient norm", "norm of the gradient, before it is clipped to 1", 1, number],
  ["kl", "KL to the start", "KL divergence from the start, in nats a completion", 1, number],
  ["question", "Your question", "probability of the right answer to your question", 1, percent],
];

const maths = {
  FIELDS, DEFAULT, MEASURES,

  valuesOf: (name, rows) => {
    if (name === "row") return Object.keys(rows);
    return FIELDS.find(([field]) => field === name)[2]?.map((value) => (Array.isArray(value) ? value[0] : value)) ?? null;
  },

  allowed: (name, value, rows) => {
    if (name === "seed") return /^(0|[1-9]\d{0,2})$/.test(value);
    return (value === "" && OWN.includes(name)) || maths.valuesOf(name, rows).includes(value);
  },

  // What the worker is told of an arm.
  settings: (arm, rows) => {
    const row = rows[arm.row], bounds = { ...row.bounds };
    for (const side of ["low", "high"]) {
      if (side in bounds && arm[side] !== "") bounds[side] = arm[side] === "none" ? Infinity : Number(arm[side]);
    }
    return {
      row: { ...row, bounds }, lr: Number(arm.lr), prompts: Number(arm.prompts), group: Number(arm.group),
      updates: Number(arm.updates) || row.updates, verdict: arm.verdict, values: arm.values.split("/").map(Number),
      kl: Number(arm.kl), seeds: Array.from({ length: Number(arm.seeds) }, (_, i) => Number(arm.seed) + i),
    };
  },

  // The settings that are not the default's, by name: what an arm is called by, and what the address holds.
  changed: (arm) => FIELDS.map(([name]) => name).filter((name) => name !== "row" && arm[name] !== DEFAULT[name]),

  nameOf: (arm, rows) => {
    const words = {
      lr: (v) => `learning rate ${v}`, updates: (v) => (v === "1" ? "1 update" : `${v} updates`),
      low: (v) => (v === "none" ? "no lower bound" : `lower bound ${v}`),
      high: (v) => (v === "none" ? "no upper bound" : `upper bound ${v}`),
      prompts: (v) => `${v} prompts`, group: (v) => `groups of ${v}`,
      verdict: (v) => ({ noisy: "a checker that errs", form: "reward for form", coin: "reward from a coin" })[v],
      values: (v) => `rewards ${v.replace("-", MINUS).replace("/", " and ")}`, kl: (v) => `KL ${v}`, seed: (v) => `seed ${v}`,
      seeds: (v) => `${v} seeds`,
    };
    const told = maths.changed(arm).filter((name) => !(arm.low === "none" && arm.high === "none" && name === "high"));
    const say = (name) => (name === "low" && arm.low === "none" && arm.high === "none" ? "no bounds" : words[name](arm[name]));
    return [rows[arm.row].title.split(" (")[0], ...told.map(say)].join(", ");
  },

  // ---- the address: #play=grpo;rloo,lr=2e-4,seeds=3;steps=240 ----

  address: (arms, limit = LIMIT) => BEGIN + [
    ...arms.map((arm) => [arm.row, ...maths.changed(arm).map((name) => `${name}=${arm[name]}`)].join(",")),
    ...(limit === LIMIT ? [] : [`steps=${limit}`]),
  ].join(";"),

  // What an address asks for, and what of it was not understood, in words. Whatever it is, arms come out of it.
  parse: (hash, rows) => {
    const problems = [];
    let text = hash.slice(BEGIN.length), limit = LIMIT;
    try {
      text = decodeURIComponent(text);
    } catch {
      problems.push("it is not well formed");
      text = "";
    }
    const quoted = (part) => `\u201c${part.slice(0, 30)}\u201d`;
    const arms = [];
    for (const part of text.split(";").filter(Boolean)) {
      const [head, ...rest] = part.split(",");
      if (head.startsWith("steps=")) {
        if (LIMITS.includes(head.slice(6)) && !rest.length) limit = head.slice(6);
        else problems.push(`${quoted(part)} is no number of steps`);
        continue;
      }
      if (arms.length === MOST_ARMS) { problems.push(`there are more than ${MOST_ARMS} arms`); break; }
      const arm = { ...DEFAULT };
      if (Object.hasOwn(rows, head)) arm.row = head;
      else problems.push(`${quoted(head)} is no row`);
      for (const setting of rest) {
        const at = setting.indexOf("="), name = setting.slice(0, at), value = setting.slice(at + 1);
        if (at > 0 && name !== "row" && Object.hasOwn(DEFAULT, name) && maths.allowed(name, value, rows)) arm[name] = value;
        else problems.push(`${quoted(setting)} is no setting`);
      }
      arms.push(arm);
    }
    if (!arms.length) arms.push({ ...DEFAULT });
    return { arms, limit, problems };
  },

  // ---- curves ----

  // How long a run will still take, in words, where that is long enough to be told.
  left: (made, steps, milliseconds) => {
    const seconds = (steps * milliseconds) / made / 1000;
    return made >= 3 && seconds > 5 ? `, about ${seconds < 90 ? `${5 * Math.ceil(seconds / 5)} s` : `${Math.round(seconds / 60)} min`} left` : "";
  },

  // The mean of the last ten points, as far as there are ten; points without a value are left out.
  smooth: (points, width = 10) => points.map(([x], i) => {
    const own = points.slice(Math.max(0, i - width + 1), i + 1);
    return [x, own.reduce((sum, [, y]) => sum + y, 0) / own.length];
  }),

  // A line as it is drawn and told: what is measured on a few samples as the mean of ten steps, the rest as it is.
  line: (key, points) => (["greedy", "kl", "question"].includes(key) ? points : maths.smooth(points)),

  // [step, value] of one run.
  points: (run, key) => run.filter((one) => one[key] !== undefined).map((one) => [one.step, one[key]]),

  // The mean of several runs, as far as all of them have come.
  average: (lines) => {
    const shortest = Math.min(...lines.map((line) => line.length));
    return Array.from({ length: shortest }, (_, i) => [lines[0][i][0], lines.reduce((sum, line) => sum + line[i][1], 0) / lines.length]);
  },

  // A number of a challenge's claim: the mean of a measure over steps from..to and over an arm's runs.
  measured: (history, { arm, of, from, to }) => {
    const values = history[arm].flatMap((run) => run.filter((one) => one.step >= from && one.step <= to && one[of] !== undefined))
      .map((one) => one[of]);
    return values.reduce((a, b) => a + b, 0) / values.length;
  },

  // Whether a claim holds: left > right + by, or left < right - by; right may be a number.
  holds: (history, { left, is, right, by = 0 }) => {
    const one = maths.measured(history, left), other = typeof right === "number" ? right : maths.measured(history, right);
    return is === ">" ? one > other + by : one < other - by;
  },

  // The claims of an explanation as sentences: one that goes on is read with what it goes on from. Each with what the
  // reader's own run has, and whether all of it holds.
  sentences: (history, claims) => {
    const found = [];
    for (const claim of claims) {
      const say = MEASURES.find(([key]) => key === claim.left.of)?.[4] ?? percent;
      const sides = [claim.left, claim.right].filter((side) => typeof side !== "number").map((side) => say(maths.measured(history, side)));
      const one = { text: claim.say, own: [sides.join(" against ")], holds: maths.holds(history, claim) }, before = found.at(-1);
      if (before && (/[^.]$/.test(before.text) || /^[a-z]/.test(one.text))) {
        before.text = `${before.text.replace(/\.$/, ",")} ${one.text}`;
        if (!before.own.includes(one.own[0])) before.own.push(one.own[0]);
        before.holds &&= one.holds;
      } else found.push(one);
    }
    return found;
  },

  // ---- the tree of a group: what completions share is one node ----

  tree: (completions) => {
    const root = { text: "", token: "", depth: 0, count: completions.length, children: [], push: 0, ends: [] };
    for (const one of completions) {
      let node = root;
      [...one.text].forEach((token, t) => {
        const text = one.text.slice(0, t + 1);
        let child = node.children.find((other) => other.text === text);
        if (!child) {
          child = { text, token, depth: t + 1, prob: one.prob[t], count: 0, push: 0, up: 0, down: 0, bound: 0, children: [], ends: [], parent: node };
          node.children.push(child);
        }
        child.count += 1;
        child.push += one.push[t];
        child[one.push[t] > 0 ? "up" : "down"] += one.push[t];
        child.bound += one.bound[t];
        node = child;
      });
      node.ends.push(one);
    }
    const nodes = [], leaves = [];
    const visit = (node) => {
      node.children.sort((a, b) => b.count - a.count || (a.text < b.text ? -1 : 1));
      if (node !== root) nodes.push(node);
      node.children.forEach(visit);
      if (!node.children.length) { node.line = leaves.length; leaves.push(node); }
      else node.line = (node.children[0].line + node.children.at(-1).line) / 2;
    };
    visit(root);
    return { root, nodes, leaves, most: Math.max(0, ...nodes.map((node) => Math.abs(node.push))) };
  },

  // 3740$ is read backwards: 0473.
  read: (text) => [...text.replace(END, "")].reverse().join(""),

  shown: (token) => (token === END ? "\u23ce" : token),

  signed: (x) => (Math.abs(x) < 0.005 ? "0" : `${x > 0 ? "+" : MINUS}${Math.abs(x).toFixed(2)}`),

  words: (node, prompt, group) => {
    const { signed } = maths, token = node.token === END ? "the end" : node.token;
    const before = node.text.slice(0, -1);
    const where = `After ${prompt}${before} the model gives ${token} a probability of ${node.prob.toFixed(2)}; ${node.count} of ${group} completions go this way.`;
    const sum = node.up > 0.005 && node.down < -0.005
      ? ` Pushes of ${signed(node.up)} and ${signed(node.down)} leave ${signed(node.push)}.`
      : ` The pushes on it add up to ${signed(node.push)}.`;
    return where + sum + (node.bound ? ` In ${node.bound} of the ${node.count} its probability has moved beyond a bound.` : "");
  },

  // ---- the lines of code of a row, with the cell that each belongs to ----

  code: (arm, rows, code) => {
    const { row, kl } = maths.settings(arm, rows), { bounds } = row, lines = [];
    const say = (value) => (Number.isInteger(value) ? String(value) : String(Number(value.toFixed(4))));
    const put = (cell, texts) => {
      for (const text of texts) {
        lines.push({ cell, text: text.replace(/\{(\w+)\}/g, (_, name) => say({ ...bounds, kl, tau: row.tau }[name])) });
      }
    };
    const penalised = kl > 0 && row.kl === "reward", perToken = code["kl in the reward"][row.advantage];
    if (penalised && !perToken) put("KL in the reward", code["kl in the reward"].others);
    put(`advantage: ${row.advantage}`, penalised && perToken ? perToken : code.advantage[row.advantage]);
    if (row.normalize) put(`normalize: ${row.normalize}`, code.normalize[row.normalize]);
    put(`ratio: ${row.ratio}`, code.ratio[row.ratio]);
    if (row.gate === "clip" && !Number.isFinite(bounds.low) && !Number.isFinite(bounds.high)) put("gate: none", code.gate.none);
    else if (row.gate === "clip" && !(Number.isFinite(bounds.low) && Number.isFinite(bounds.high))) {
      const side = Number.isFinite(bounds.low) ? `min=1 - ${say(bounds.low)}` : `max=1 + ${say(bounds.high)}`;
      put("gate: clip", [`clipped = ratio.clamp(${side})`, code.gate.clip[1]]);
    } else put(`gate: ${row.gate}`, code.gate[row.gate]);
    put(`aggregate: ${row.aggregate}`, code.aggregate[row.aggregate]);
    if (row.tau) put("KL to the old policy", code.tau);
    if (kl > 0 && row.kl === "loss") {
      const own = row.aggregate === "geometric_mean" ? "sequence_mean" : row.aggregate;
      put("KL in the loss", [...code["kl in the loss"].estimate, ...code["kl in the loss"][own]]);
    }
    return lines;
  },

  // Which lines an arm does not share with another.
  differing: (lines, others) => lines.map(({ text }) => !others.some((other) => other.text === text)),

  // Ticks of an axis from 0: at most five, at round numbers.
  ticks: (top) => {
    const power = 10 ** Math.floor(Math.log10(top)), step = [0.1, 0.2, 0.25, 0.5, 1, 2].map((n) => n * power).find((one) => top / one <= 5);
    return Array.from({ length: Math.floor(top / step + 1e-9) + 1 }, (_, i) => i * step);
  },
};

const STYLE = `
.playground { --line: color-mix(in srgb, currentColor 22%, transparent); --panel: color-mix(in srgb, currentColor 4%, transparent);
  --soft: color-mix(in srgb, currentColor 78%, transparent); --arm0: #1a5f9c; --arm1: #b04a00; --arm2: #0a6b50; --arm3: #7434b3;
  --up: 0 114 178; --down: 213 94 0; --go: #1a5f9c; --on-go: #fff;
  color: var(--jp-ui-font-color1, inherit); font-size: 0.9rem; line-height: 1.4; container-type: inline-size; }
html[data-theme="dark"] .playground { --arm0: #7dbdf2; --arm1: #f2a15f; --arm2: #5fd3a5; --arm3: #cf9bff; --up: 86 180 233;
  --down: 240 140 60; --go: #7dbdf2; --on-go: #10202e; }
.playground *, .playground *::before { box-sizing: border-box; }
.playground :is(h3, h4) { font-size: 1rem; font-weight: 600; margin: 0; }
.playground :is(p, fieldset, ul, ol) { margin: 0; max-width: none; }
.playground p + p { margin-block-start: 0.4rem; }
.playground .quiet { color: var(--soft); font-size: 0.83rem; }
.playground :is(button, select, input) { font: inherit; color: inherit; background: transparent; border: 1px solid var(--line);
  border-radius: 0.4rem; min-height: 2.1rem; padding: 0.2rem 0.6rem; max-width: 100%; margin: 0; }
.playground option { color: CanvasText; background: Canvas; }
.playground button { cursor: pointer; }
.playground button:hover:not(:disabled) { background: color-mix(in srgb, currentColor 10%, transparent); }
.playground :is(button, select, input):disabled { opacity: 0.55; cursor: default; }
.playground :is(button, select, input, summary, a, [tabindex]):focus-visible { outline: 3px solid #3b8fcf; outline-offset: 2px; }
.playground button.go { background: var(--go); color: var(--on-go); border-color: var(--go); font-weight: 600; min-width: 6.5rem;
  font-size: 1.05rem; min-height: 2.5rem; }
.playground button.go:hover:not(:disabled) { background: color-mix(in srgb, var(--go) 85%, currentColor); }
.playground .bar { display: flex; flex-wrap: wrap; gap: 0.5rem 0.6rem; align-items: center; }
.playground .bar label { display: inline-flex; gap: 0.35rem; align-items: center; }
.playground .count { font-variant-numeric: tabular-nums; font-weight: 600; min-width: 8.5rem; }
.playground .said { min-height: 1.4em; margin-block: 0.3rem 0.6rem; }
.playground .panel { border: 1px solid var(--line); border-radius: 0.6rem; background: var(--panel); padding: 0.75rem; min-width: 0; }
.playground :is(.panel, .main) + .panel, .playground .two { margin-block-start: 0.75rem; }
.playground .main, .playground .two { display: grid; gap: 0.75rem; grid-template-columns: minmax(0, 1fr); }
.playground .main { align-items: start; }
.playground :is(.main, .two) > .panel { margin: 0; }
.playground .chips { display: flex; flex-wrap: wrap; gap: 0.35rem; align-items: center; margin-block-end: 0.75rem; }
.playground .chips button { border-radius: 1rem; min-height: 1.9rem; padding-block: 0.1rem; }
.playground [aria-pressed="true"], .playground [aria-selected="true"] { border-color: currentColor; box-shadow: inset 0 0 0 1px currentColor; }
.playground .challenge { margin-block-end: 0.75rem; border-inline-start: 4px solid var(--go); }
.playground .challenge fieldset { border: 0; padding: 0; margin-block: 0.5rem; display: grid; gap: 0.2rem; }
.playground .challenge legend { font-weight: 600; font-size: inherit; padding: 0; margin: 0 0 0.2rem; float: none; width: auto; }
.playground .challenge fieldset label { display: flex; gap: 0.5rem; align-items: baseline; }
.playground input[type=radio] { min-height: 0; accent-color: #3b8fcf; }
.playground .verdict:not(:empty) { margin-block: 0.6rem; padding-inline-start: 0.75rem; border-inline-start: 4px solid var(--go); }
.playground .claims { list-style: none; padding: 0; margin-block: 0.4rem; display: grid; gap: 0.3rem; }
.playground .claims li { padding-inline-start: 1.5rem; position: relative; }
.playground .claims li::before { content: attr(data-mark); position: absolute; inset-inline-start: 0; font-weight: 700; }
.playground .arms { display: grid; gap: 0.4rem; grid-template-columns: minmax(0, 1fr); list-style: none; padding: 0; margin-block-end: 0.75rem; }
.playground .arms li { display: flex; margin: 0; }
.playground .arms .arm { flex: 1; min-width: 0; text-align: start; display: grid; grid-template-columns: 2.2rem minmax(0, 1fr) auto; gap: 0.15rem 0.5rem;
  align-items: center; border-start-end-radius: 0; border-end-end-radius: 0; }
.playground .arms li.only .arm { border-radius: 0.4rem; }
.playground .arms .remove { border-start-start-radius: 0; border-end-start-radius: 0; border-inline-start: 0; }
.playground .arms .add { flex: 1; border-style: dashed; }
.playground .arms svg { width: 2.2rem; height: 0.8rem; }
.playground .arms .name { overflow-wrap: anywhere; line-height: 1.25; }
.playground .arms output { font-variant-numeric: tabular-nums; font-weight: 600; }
.playground .fields { display: grid; gap: 0.45rem 0.6rem; grid-template-columns: repeat(2, minmax(0, 1fr)); margin-block-start: 0.5rem; align-items: end; }
.playground .fields .full { grid-column: 1 / -1; }
.playground .fields label > span { display: block; font-size: 0.8rem; color: var(--soft); }
.playground .fields :is(select, input) { width: 100%; }
.playground .meanings { padding-inline-start: 1.1rem; font-size: 0.83rem; margin-block-start: 0.3rem; }
.playground .hint { margin-block-start: 0.5rem; }
.playground svg text { fill: currentColor; font-size: 12px; }
.playground svg.chart { display: block; width: 100%; height: 19rem; cursor: crosshair; touch-action: pan-y; }
.playground svg .empty { font-size: 1.3rem; fill-opacity: 0.75; }
.playground .curve { fill: none; stroke-linejoin: round; }
.playground .measures { display: grid; gap: 0.35rem; grid-template-columns: repeat(auto-fill, minmax(5.2rem, 1fr)); margin-block-start: 0.5rem; }
.playground .measures button { padding: 0.25rem 0.4rem; text-align: start; font-size: 0.78rem; line-height: 1.2; }
.playground .measures svg { display: block; width: 100%; height: 2.1rem; margin-block-start: 0.15rem; }
.playground .controls { display: flex; flex-wrap: wrap; gap: 0.4rem 0.8rem; align-items: center; margin-block: 0.4rem; }
.playground .controls label { display: inline-flex; gap: 0.4rem; align-items: center; min-width: 0; white-space: nowrap; }
.playground .controls select { min-width: 0; }
.playground .controls .wide { flex: 1 1 14rem; }
.playground .controls input[type=range] { flex: 1; min-width: 4rem; padding: 0; border: 0; accent-color: #3b8fcf; }
.playground svg.tree { display: block; width: 100%; }
.playground svg.tree .node { cursor: pointer; }
.playground svg.tree rect { stroke: var(--line); stroke-width: 1; }
.playground svg.tree .node.chosen rect { stroke: currentColor; stroke-width: 2.5; }
.playground svg.tree .node:focus { outline: none; }
.playground svg.tree .node:focus-visible rect { stroke: #3b8fcf; stroke-width: 4; }
.playground svg.tree .token { font: 600 16px ui-monospace, Menlo, Consolas, monospace; }
.playground svg.tree .small { font-size: 11px; }
.playground svg.tree .link { fill: none; stroke: currentColor; stroke-opacity: 0.22; stroke-linecap: round; }
.playground .about { min-height: 2.8em; }
.playground code, .playground .mono { font-family: ui-monospace, Menlo, Consolas, monospace; background: none; border: 0; padding: 0; color: inherit; }
.playground .answers { border-collapse: collapse; margin-block-start: 0.5rem; width: 100%; font-size: inherit; }
.playground :is(.answers, .table) :is(th, td) { border: 0; border-block-start: 1px solid var(--line); background: none; padding: 0.25rem 0.5rem 0.25rem 0;
  text-align: start; vertical-align: top; font-weight: normal; color: inherit; }
.playground .scroll { overflow-x: auto; }
.playground .table { border-collapse: collapse; font-size: 0.83rem; }
.playground .table thead th { font-weight: 600; }
.playground .ask { display: flex; flex-wrap: wrap; gap: 0.4rem; align-items: center; margin-block-start: 0.4rem; }
.playground .ask input { width: 8.5rem; font-family: ui-monospace, Menlo, Consolas, monospace; }
.playground .lines { margin: 0.3rem 0 0; overflow-x: auto; font-size: 0.8rem; line-height: 1.5; padding: 0; background: none; border: 0; color: inherit; }
.playground .lines span { display: block; padding-inline: 0.4rem; border-inline-start: 3px solid transparent; white-space: pre-wrap; overflow-wrap: anywhere;
  padding-inline-start: 2rem; text-indent: -1.6rem; }
.playground .lines .differs { background: color-mix(in srgb, #3b8fcf 16%, transparent); border-inline-start-color: #3b8fcf; }
.playground .lines .cell { color: var(--soft); font-size: 0.72rem; font-family: inherit; margin-block-start: 0.25rem; }
.playground .link { flex: 1 1 12rem; min-width: 0; }
.playground details { margin-block-start: 0.5rem; max-width: none; }
.playground summary { cursor: pointer; }
@container (min-width: 34rem) {
  .playground .arms { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .playground .challenge fieldset { display: flex; flex-wrap: wrap; gap: 0.3rem 1.2rem; }
  .playground .challenge legend { flex-basis: 100%; }
}
@container (min-width: 46rem) {
  .playground .main { grid-template-columns: minmax(0, 1fr) 16.5rem; }
  .playground .two { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .playground svg.chart { height: 23rem; }
}
@container (min-width: 60rem) {
  .playground .arms { grid-template-columns: repeat(4, minmax(0, 1fr)); }
  .playground .main { grid-template-columns: minmax(0, 1fr) 18rem; }
}
@media (prefers-reduced-motion: no-preference) {
  .playground button { transition: background-color 0.15s; }
}
.bd-article figure.mjs:has(.playground) { max-width: none; margin-inline: 0; }
.bd-main .bd-content .bd-article-container:has(.playground:not(.front)) { max-width: 84rem; }
.playground.front svg.chart { height: 17rem; }
body:has(.playground:not(.front)) #pst-back-to-top { display: none; }
`;

const SVG = "http://www.w3.org/2000/svg";
const DASHES = ["", "8 4", "2.5 3", "10 3 2.5 3"];
const LOOK_EVERY = 150; // milliseconds between two looks at a tree while it trains

function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function picture(tag, attributes, text = "") {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}

function select(values, chosen, change) {
  const options = values.map((one) => (Array.isArray(one) ? one : [one, one]));
  const made = element("select", {}, ...options.map(([value, text]) => element("option", { value, textContent: text })));
  made.value = chosen;
  made.addEventListener("change", () => change(made.value));
  return made;
}

const labelled = (text, control, className = "") => element("label", { className }, element("span", { textContent: text }), control);

// ---- pictures ----

const path = (points, x, y) => points.map(([a, b], i) => `${i ? "L" : "M"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join("");

// The lines of one measure: of each arm its runs, thin, and their mean, thick. [points of the mean, by arm] comes back.
function drawLines(svg, history, key, x, y, thick) {
  return history.map((runs, arm) => {
    const lines = runs.map((run) => maths.points(run, key)).filter((line) => line.length);
    if (lines.length < runs.length || !lines.length) return [];
    const even = (line) => maths.line(key, line), mean = even(maths.average(lines)), stroke = `var(--arm${arm})`;
    for (const line of thick > 2 ? lines : []) {
      svg.append(picture("path", { class: "curve", d: path(lines.length > 1 ? even(line) : line, x, y), stroke, "stroke-width": 1, opacity: 0.4 }));
    }
    svg.append(picture("path", { class: "curve mean", d: path(mean, x, y), stroke, "stroke-width": thick, "stroke-dasharray": thick > 2 ? DASHES[arm] : "" }));
    if (mean.length === 1) svg.append(picture("circle", { cx: x(mean[0][0]), cy: y(mean[0][1]), r: thick, fill: stroke }));
    return mean;
  });
}

const highest = (history, key, least) => {
  const all = history.flat().flatMap((run) => maths.points(run, key).map(([, y]) => y));
  return least === 1 && (key === "right" || key === "greedy" || key === "question") ? 1 : Math.max(least, ...all);
};

function drawChart(svg, { history, limit, measure, names, at = null, empty = "Press Train" }) {
  const [key, title, axis, least, say] = measure;
  const width = svg.clientWidth || 600, height = svg.clientHeight || 300, left = 46, right = 14, top = 30, bottom = 40;
  const most = highest(history, key, least);
  const x = (step) => left + (step / limit) * (width - left - right), y = (value) => top + (1 - value / most) * (height - top - bottom);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.replaceChildren();
  for (const tick of maths.ticks(most)) {
    svg.append(picture("path", { d: `M${left} ${y(tick)}H${width - right}`, stroke: "currentColor", "stroke-opacity": 0.15 }),
      picture("text", { x: left - 7, y: y(tick) + 4, "text-anchor": "end" }, say(tick)));
  }
  const short = width < 480 && axis.length > 40 ? title.toLowerCase() : axis;
  svg.append(picture("text", { x: 2, y: 14 }, short));
  for (let step = 0; step <= limit; step += limit / 6) {
    svg.append(picture("text", { x: x(step), y: height - bottom + 18, "text-anchor": "middle" }, String(step)));
  }
  svg.append(picture("text", { x: (left + width - right) / 2, y: height - 3, "text-anchor": "middle" }, "training step"));
  if (!history.flat().some((run) => run.length)) {
    svg.append(picture("text", { x: (left + width - right) / 2, y: (top + height - bottom) / 2, "text-anchor": "middle", class: "empty" }, empty));
  }
  if (at) svg.append(picture("path", { d: `M${x(at)} ${top}V${height - bottom}`, stroke: "currentColor", "stroke-opacity": 0.5, "stroke-dasharray": "2 3" }));
  const means = drawLines(svg, history, key, x, y, 2.75);
  const told = means.map((mean, arm) => (mean.length ? `${names[arm]}: ${say(mean.at(-1)[1])} at step ${mean.at(-1)[0]}` : "")).filter(Boolean);
  svg.setAttribute("aria-label", `${title}, ${axis}. ${told.join("; ") || "No step yet"}.`);
  return (clientX) => Math.round(((clientX - svg.getBoundingClientRect().left - left) / (width - left - right)) * limit);
}

// Of a group that the worker has sent; `choose` is called with a node.
function drawTree(svg, group, chosen, choose) {
  const { root, nodes, leaves, most } = maths.tree(group.completions);
  const width = svg.clientWidth || 600, wide = width > 640;
  const first = wide ? 104 : 8, last = wide ? 168 : 58, column = (width - first - last) / 5, box = Math.min(96, column - (wide ? 18 : 9)), roomy = box > 76;
  const pitch = 46, tall = 38, head = wide ? 6 : 30, x = (node) => first + (node.depth - 1) * column, y = (node) => head + node.line * pitch;
  const size = group.completions.length, height = head + leaves.length * pitch;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.style.height = `${height}px`;
  svg.replaceChildren();
  svg.append(picture("text", { x: wide ? 4 : 8, y: wide ? y(root) + 24 : 18, class: "token" }, group.prompt));
  const links = picture("g", {}), marks = picture("g", {});
  svg.append(links, marks);
  for (const node of nodes) {
    const parent = node.parent === root ? { x: wide ? 92 : 0, y: (wide ? y(root) : y(node)) + tall / 2 } : { x: x(node.parent) + box, y: y(node.parent) + tall / 2 };
    const a = x(node), b = y(node) + tall / 2, half = (parent.x + a) / 2;
    if (wide || node.parent !== root) {
      links.append(picture("path", { class: "link", d: `M${parent.x} ${parent.y}C${half} ${parent.y} ${half} ${b} ${a} ${b}`, "stroke-width": 1.5 + 10 * node.count / size }));
    }
    const still = most === 0 || Math.abs(node.push) < 1e-3 * most, up = node.push > 0;
    const shade = still ? 0 : 0.12 + 0.55 * Math.abs(node.push) / most;
    const one = picture("g", { class: `node${node.text === chosen ? " chosen" : ""}`, tabindex: node.text === chosen || (!chosen && node === nodes[0]) ? 0 : -1,
      role: "button", "aria-pressed": String(node.text === chosen), "data-text": node.text, "aria-label": maths.words(node, group.prompt, size), transform: `translate(${a} ${y(node)})` });
    const sign = still ? "\u00b7" : up ? "\u25b2" : "\u25bc";
    const small = [node.prob > 0.995 ? "1.0" : node.prob < 0.005 ? "<.01" : node.prob.toFixed(2).slice(1), roomy ? `\u00d7${node.count}` : "", node.bound ? "\u2702" : ""].filter(Boolean).join(" ");
    one.append(
      picture("rect", { width: box, height: tall, rx: 6, fill: `rgb(var(--${up ? "up" : "down"}) / ${shade.toFixed(3)})` }),
      picture("text", { class: "token", x: roomy ? 9 : box / 2 - 8, y: 18, "text-anchor": roomy ? "start" : "middle" }, maths.shown(node.token)),
      picture("text", { class: "small", x: roomy ? box - 8 : box / 2 + 4, y: 17, "text-anchor": roomy ? "end" : "start" }, roomy && !still ? `${sign} ${Math.abs(node.push).toFixed(2)}` : sign),
      picture("text", { class: "small", x: roomy ? 9 : box / 2, y: 32, "text-anchor": roomy ? "start" : "middle" }, small),
    );
    one.addEventListener("click", () => choose(node.text));
    one.addEventListener("keydown", (event) => {
      const beside = nodes.filter((other) => other.depth === node.depth), here = beside.indexOf(node);
      const to = { ArrowRight: node.children[0], ArrowLeft: node.parent, ArrowDown: beside[here + 1], ArrowUp: beside[here - 1] }[event.key];
      if (event.key === "Enter" || event.key === " ") choose(node.text);
      else if (to && to !== root) choose(to.text);
      else if (!event.key.startsWith("Arrow")) return;
      event.preventDefault();
    });
    marks.append(one);
    if (node.ends.length) {
      const { right, reward, advantage } = node.ends[0], end = x(node) + box + 8, middle = y(node) + 16;
      const rewards = [...new Set(node.ends.map((other) => other.reward))].map(number).map((text) => text.replace(/\.00$/, "")).join(" or ");
      marks.append(picture("text", { x: end, y: middle }, `${right ? "\u2713" : "\u2717"} ${wide ? (right ? "right" : "wrong") : ""}${wide ? `, reward ${rewards}` : rewards}`),
        picture("text", { class: "small", x: end, y: middle + 15 }, wide ? `\u00d7${node.ends.length}, advantage ${maths.signed(advantage[0])}` : `\u00d7${node.ends.length}`));
    }
  }
  return nodes;
}

// ---- the page ----

function render({ model, el }) {
  const rows = model.get("rows"), small = Boolean(model.get("small"));
  if (!rows) return () => {};
  const root = element("div", { className: small ? "playground front" : "playground" }, element("style", { textContent: STYLE }));
  const said = element("p", { className: "said quiet", role: "status" });
  const say = (text) => { said.textContent = text; };
  el.append(root);

  // What there is to see: history[arm][seed] is a list of steps.
  const now = {
    arms: small ? [{ ...DEFAULT }, { ...DEFAULT, verdict: "coin" }] : [{ ...DEFAULT }], limit: LIMIT, selected: 0, number: 0, turn: 0, began: 0, from: 0, history: [], running: false,
    speed: "0", measure: MEASURES[0], question: null, answers: null, challenge: null, guess: null, over: false,
    look: { step: null, group: "mixed", last: false, ticket: 0, asked: 0, node: null, seen: null }, beside: 0, dirty: true, engine: "",
  };
  const names = () => now.arms.map((arm) => maths.nameOf(arm, rows));
  const done = () => Math.min(...now.history.flatMap((runs) => runs.map((run) => run.length)));

  const worker = new Worker(URL.createObjectURL(new Blob([model.get("engine")], { type: "text/javascript" })));
  const tell = (kind, message = {}) => worker.postMessage({ kind, ...message });
  worker.addEventListener("error", (event) => say(`The worker of this page failed: ${event.message}`));

  // ---- training ----

  const rebuild = () => {
    now.number += 1;
    Object.assign(now, { history: now.arms.map((arm) => Array.from({ length: Number(arm.seeds) }, () => [])), running: false, over: false, answers: null });
    Object.assign(now.look, { step: null, seen: null, node: null, ticket: now.look.ticket + 1 });
    now.selected = Math.min(now.selected, now.arms.length - 1);
    tell("arms", { number: now.number, arms: now.arms.map((arm) => maths.settings(arm, rows)), limit: Number(now.limit), question: now.question });
    now.dirty = true;
  };
  const go = (once = false) => {
    if (now.over) rebuild();
    now.running = true;
    Object.assign(now, { began: performance.now(), from: done() });
    now.turn += 1;
    tell("go", { speed: Number(now.speed), once, turn: now.turn });
    if (!once) say("Training.");
    now.dirty = true;
  };
  const pause = () => {
    now.running = false; // at once: the next press is a new turn, whatever is still on its way from this one
    tell("pause");
    now.dirty = true;
  };

  worker.addEventListener("message", ({ data }) => {
    if (data.kind === "ready") {
      now.engine = data.engine;
      train.disabled = false;
      root.dataset.engine = data.engine;
      if (small) for (const recorded of document.querySelectorAll("figure.learning-picture")) recorded.hidden = true;
      return;
    }
    if (data.number !== now.number) return;
    if (data.kind === "steps") {
      for (const { arm, seed, ...one } of data.items) now.history[arm][seed].push(one);
    } else if (data.kind === "answers") {
      now.answers = data;
    } else if (data.kind === "looked" && data.ticket === now.look.ticket) {
      now.look.seen = data;
    } else if (data.kind === "stopped" && data.turn === now.turn) {
      now.running = false;
      now.over = data.finished;
      say(data.finished ? `Done: ${now.limit} steps.` : `Stopped at step ${done()}.`);
    }
    now.dirty = true;
  });

  // ---- the bar ----

  const train = element("button", { type: "button", className: "go", textContent: "Train", disabled: true });
  train.addEventListener("click", () => (now.running ? pause() : go()));
  const one = element("button", { type: "button", textContent: "One step" });
  one.addEventListener("click", () => { if (!now.running) go(true); });
  const again = element("button", { type: "button", textContent: "Start over" });
  again.addEventListener("click", () => { rebuild(); say("Back at the start."); });
  const count = element("span", { className: "count" });
  const chart = picture("svg", { class: "chart", role: "img" });
  const showBar = () => {
    train.textContent = now.running ? "Pause" : now.over ? "Train again" : done() ? "Continue" : "Train";
    one.disabled = now.running || now.over;
    const left = now.running && now.speed === "0" ? maths.left(done() - now.from, Number(now.limit) - done(), performance.now() - now.began) : "";
    count.textContent = `step ${done()} of ${now.limit}${left}`;
  };

  if (small) {
    const key = element("p", { className: "quiet" });
    root.append(element("div", { className: "bar" }, train, again, count), said, chart, key);
    const draw = () => {
      showBar();
      drawChart(chart, { history: now.history, limit: Number(now.limit), measure: MEASURES[0], names: ["reward: is it right?", "reward: a coin"] });
      const at = (arm) => { const line = maths.smooth(maths.points(now.history[arm][0], "right")); return line.length ? `, ${percent(line.at(-1)[1])} right` : ""; };
      key.replaceChildren(...["reward for being right", "reward from a coin"].flatMap((text, arm) => [
        swatch(arm), element("span", { textContent: ` ${text}${at(arm)}${arm ? "" : "\u2003"}` })]));
    };
    begin(draw);
    return () => worker.terminate();
  }

  function swatch(arm) {
    const svg = picture("svg", { viewBox: "0 0 35 10", "aria-hidden": "true", width: 35, height: 10 });
    svg.append(picture("path", { d: "M0 5H35", stroke: `var(--arm${arm})`, "stroke-width": 3, "stroke-dasharray": DASHES[arm] }));
    return svg;
  }

  // Draws at most once a frame, when something has changed.
  function begin(draw) {
    let planned = false;
    const plan = () => {
      if (now.dirty && !planned) {
        planned = true;
        requestAnimationFrame(() => { planned = false; now.dirty = false; draw(); });
      }
    };
    worker.addEventListener("message", plan);
    for (const event of ["click", "change", "keyup", "input"]) root.addEventListener(event, () => queueMicrotask(plan));
    new ResizeObserver(() => { now.dirty = true; plan(); }).observe(root);
    now.plan = plan;
    tell("start", { weights: model.get("weights"), kernel: model.get("kernel") });
    rebuild();
    plan();
  }

  const speed = select(SPEEDS, now.speed, (value) => { now.speed = value; if (now.running) go(); });
  const limit = select(LIMITS.map((n) => [n, `${n} steps`]), now.limit, (value) => { now.limit = value; changed(); });
  const bar = element("div", { className: "bar" }, train, one, again, labelled("", limit), labelled("", speed), count);
  limit.setAttribute("aria-label", "length of the run");
  speed.setAttribute("aria-label", "speed");

  // Whether the arms are those of the question, but for their seeds.
  const asAsked = (challenge) => {
    const bare = (arm) => JSON.stringify({ ...DEFAULT, ...arm, seed: "" });
    return now.arms.length === challenge.arms.length && now.limit === LIMIT && now.arms.every((arm, i) => bare(arm) === bare(challenge.arms[i]));
  };
  // Whatever changes the arms begins anew and goes into the address.
  const changed = () => {
    const far = done();
    rebuild();
    result.replaceChildren();
    if (now.challenge && !asAsked(now.challenge)) say("These are no longer the arms of the question, so its answer will not be shown.");
    else say(far ? "The settings have changed, so all arms begin anew. Press Train." : "");
    history.replaceState(null, "", maths.address(now.arms, now.limit));
    link.value = location.href;
  };

  // ---- challenges ----

  const challenges = model.get("challenges") ?? [];
  const chips = element("div", { className: "chips", role: "group" }, element("span", { className: "quiet", textContent: "Predict, then run:" }));
  chips.setAttribute("aria-label", "questions to predict");
  const panel = element("section", { className: "panel challenge", hidden: true });
  panel.setAttribute("aria-label", "the question");
  for (const challenge of challenges) {
    const chip = element("button", { type: "button", textContent: challenge.short });
    chip.addEventListener("click", () => open(now.challenge === challenge ? null : challenge));
    challenge.chip = chip;
    chips.append(chip);
  }
  const open = (challenge) => {
    now.challenge = challenge;
    now.guess = null;
    if (challenge) {
      now.arms = challenge.arms.map((arm) => ({ ...DEFAULT, ...arm }));
      now.limit = limit.value = LIMIT;
      now.selected = 0;
      now.beside = 1;
      now.measure = MEASURES[0];
      rebuild();
      link.value = `${location.href.split("#")[0]}#${challenge.id}`;
      say("Choose what you expect, then run it.");
    } else say("");
    showChallenge();
  };
  const result = element("div", { className: "verdict", role: "status" });
  const showChallenge = () => {
    const { challenge } = now;
    for (const other of challenges) other.chip.setAttribute("aria-pressed", String(other === challenge));
    panel.hidden = !challenge;
    if (!challenge) return;
    const run = element("button", { type: "button", className: "go", textContent: "Run it", disabled: true });
    run.addEventListener("click", () => { if (now.over) rebuild(); if (!now.running) go(); train.focus({ preventScroll: true }); chart.scrollIntoView({ block: "nearest" }); });
    const choices = challenge.options.map((text, i) => {
      const radio = element("input", { type: "radio", name: "guess" });
      radio.addEventListener("change", () => { now.guess = i; run.disabled = false; now.dirty = true; });
      return element("label", {}, radio, element("span", { textContent: text }));
    });
    result.replaceChildren();
    panel.replaceChildren(element("h3", { textContent: challenge.title }), element("p", { textContent: challenge.question }),
      element("fieldset", {}, element("legend", { textContent: "What do you expect?" }), ...choices), run);
  };
  // What came out: said once the run is over, with a mark for each sentence that the reader's own run bears out.
  const showResult = () => {
    const { challenge } = now;
    if (!challenge || !now.over || now.guess === null || !asAsked(challenge)) { if (result.childNodes.length) result.replaceChildren(); return; }
    if (result.childNodes.length) return;
    const sentences = maths.sentences(now.history, challenge.claims), failed = sentences.filter(({ holds }) => !holds).length;
    const claims = sentences.map(({ text, own, holds }) => {
      const item = element("li", {}, text, element("span", { className: "quiet", textContent: ` Here: ${own.join("; ")}.` }));
      item.dataset.mark = holds ? "\u2713" : "\u2717";
      return item;
    });
    const answer = `\u201c${challenge.options[challenge.answer]}\u201d.`;
    const lead = now.guess === challenge.answer ? `As you expected: ${answer}` : `You expected \u201c${challenge.options[now.guess]}\u201d. It came out otherwise: ${answer}`;
    const chapter = element("a", { href: `../${challenge.chapter}.html`, textContent: challenge.chapterTitle });
    const why = element("p", {}, element("strong", { textContent: "Why? " }), challenge.why);
    if (challenge.look) {
      const { arm, step, last, words } = challenge.look, show = element("button", { type: "button", textContent: words });
      show.addEventListener("click", () => {
        now.selected = arm;
        updateMenu.value = last ? "last" : "first";
        groupMenu.value = "mixed";
        look({ step, last, group: "mixed", node: null });
        groupPanel.scrollIntoView({ block: "start" });
        slider.focus({ preventScroll: true });
      });
      why.append(" ", show);
    }
    result.replaceChildren(element("p", {}, element("strong", { textContent: lead })), why,
      element("ul", { className: "claims" }, ...claims), element("p", {}, "Read on: ", chapter, "."),
      element("p", { className: "quiet", textContent: (failed ? "\u2717 stands before what your run does not bear out: the sentences were checked for three other seeds. " : "") +
        "\u2713 stands before what your own run bears out; its numbers are means of the steps that the sentence speaks of." }));
  };

  // ---- arms and their settings ----

  const arms = element("ul", { className: "arms" });
  arms.setAttribute("aria-label", "arms");
  const showArms = () => {
    const all = names(), focused = document.activeElement?.dataset?.arm;
    const items = now.arms.map((arm, i) => {
      const line = maths.points(now.history[i][0] ?? [], now.measure[0]);
      const pick = element("button", { type: "button", className: "arm" }, swatch(i), element("span", { className: "name", textContent: all[i] }), element("output"));
      pick.dataset.arm = `pick${i}`;
      pick.setAttribute("aria-pressed", String(i === now.selected));
      pick.addEventListener("click", () => { now.selected = i; lookAgain(); now.dirty = true; });
      const item = element("li", { className: now.arms.length > 1 ? "" : "only" }, pick);
      if (now.arms.length > 1) {
        const remove = element("button", { type: "button", className: "remove", textContent: "\u00d7" });
        remove.dataset.arm = `remove${i}`;
        remove.setAttribute("aria-label", `remove ${all[i]}`);
        remove.addEventListener("click", () => { now.arms.splice(i, 1); if (now.selected > i) now.selected -= 1; changed(); });
        item.append(remove);
      }
      return item;
    });
    if (now.arms.length < MOST_ARMS) {
      const add = element("button", { type: "button", className: "add", textContent: "+ Add an arm to compare" });
      add.dataset.arm = "add";
      add.addEventListener("click", () => {
        now.arms.push({ ...now.arms[now.selected] });
        now.selected = now.arms.length - 1;
        now.beside = 0;
        changed();
        say("A copy stands beside it. Now change one of its settings.");
      });
      items.push(element("li", {}, add));
    }
    arms.replaceChildren(...items);
    if (focused) (arms.querySelector(`[data-arm="${focused}"]`) ?? arms.querySelector("button")).focus();
  };
  const showValues = () => {
    [...arms.querySelectorAll("output")].forEach((output, i) => {
      const lines = (now.history[i] ?? []).map((run) => maths.points(run, now.measure[0])).filter((line) => line.length);
      const mean = lines.length ? maths.line(now.measure[0], maths.average(lines)).at(-1)?.[1] : undefined;
      output.textContent = mean === undefined ? "" : now.measure[4](mean);
    });
  };

  const fields = element("div", { className: "fields" });
  const hint = element("p", { className: "quiet hint" });
  const controls = Object.fromEntries(FIELDS.map(([name, label, values]) => {
    const set = (value) => {
      const arm = now.arms[now.selected];
      if (!maths.allowed(name, value, rows)) { say(`${label}: ${value || "nothing"} is not between 0 and 999.`); controls[name].value = arm[name]; return; }
      const together = name === "seed" && now.challenge && now.arms.length > 1 && now.arms.every((other) => other.seed === arm.seed);
      for (const one of together ? now.arms : [arm]) one[name] = value;
      const taken = name === "row" && OWN.some((own) => arm[own] !== "");
      if (name === "row") for (const own of OWN) arm[own] = "";
      changed();
      if (together) say("All arms have this first seed now, as they had one before.");
      if (taken) say("All arms begin anew; updates and bounds are now this row's own.");
    };
    if (name === "seed") {
      const input = element("input", { type: "number", min: 0, max: 999, step: 1 });
      input.addEventListener("change", () => set(input.value.replace(/^0+(?=\d)/, "")));
      return [name, input];
    }
    const shown = name === "row" ? Object.entries(rows).map(([key, { title }]) => [key, title]) : [...(OWN.includes(name) ? [["", ""]] : []), ...values];
    return [name, select(shown, "", set)];
  }));
  for (const [name, label] of FIELDS) fields.append(labelled(label, controls[name], ["row", "verdict"].includes(name) ? "full" : ""));
  const settings = element("section", { className: "panel settings" });
  const armTitle = element("h3", {});
  settings.append(armTitle, fields, hint, element("details", { className: "more" }, element("summary", { textContent: "What the settings mean" }),
    element("ul", { className: "meanings" }, ...MEANINGS.map(([word, text]) => element("li", {}, element("strong", { textContent: `${word}: ` }), text)))));
  const showSettings = () => {
    const arm = now.arms[now.selected], row = rows[arm.row], updates = Number(arm.updates) || row.updates;
    armTitle.textContent = now.arms.length > 1 ? `Arm ${now.selected + 1} of ${now.arms.length}` : "Settings";
    for (const [name] of FIELDS) controls[name].value = arm[name];
    for (const name of OWN) {
      const own = name === "updates" ? row.updates : row.bounds[name];
      controls[name].closest("label").hidden = own === undefined;
      if (own !== undefined) controls[name].options[0].textContent = `${Number(own.toFixed(4))} (row)`;
    }
    hint.textContent = row.gate !== "none" && updates === 1
      ? "With one update a batch every ratio is 1, and a bound or a gate does nothing. Take more updates to see it at work."
      : row.gate === "none" && updates > 1 && !row.tau ? "This row has no ratio: further updates go on as if the samples were still the policy's own." : "";
  };

  // ---- curves ----

  const numbers = element("div", { className: "scroll" });
  const measures = element("div", { className: "measures", role: "group" });
  measures.setAttribute("aria-label", "what the chart shows");
  const sparks = MEASURES.map((measure) => {
    const svg = picture("svg", { "aria-hidden": "true", preserveAspectRatio: "none", viewBox: "0 0 100 30" });
    const button = element("button", { type: "button" }, element("span", { textContent: measure[1] }), svg);
    button.addEventListener("click", () => { now.measure = measure; now.dirty = true; });
    measures.append(button);
    return [measure, button, svg];
  });
  const note = element("p", { className: "quiet" });
  const curves = element("section", { className: "panel" }, chart, note, result, measures,
    element("details", { className: "more" }, element("summary", { textContent: "The numbers as a table" }), numbers));
  let stepAt = () => 1;
  chart.addEventListener("click", (event) => look({ step: Math.max(1, Math.min(done(), stepAt(event.clientX))) }));
  const showCurves = () => {
    const [key] = now.measure, most = Number(now.limit);
    stepAt = drawChart(chart, { history: now.history, limit: most, measure: now.measure, names: names(), at: now.look.step,
      empty: now.challenge && now.guess === null ? "What do you expect?" : now.challenge ? "Run it" : "Press Train" });
    const several = now.arms.some((arm) => arm.seeds !== "1");
    note.textContent = key === "question" && !now.question ? "Type a question of your own below, and its curve is drawn here from then on."
      : ["greedy", "kl", "question"].includes(key) ? "" : several ? "Thin: a seed each. Thick: their mean. All are means of the last ten steps."
        : "Thin: each step. Thick: the mean of the last ten steps.";
    for (const [measure, button, svg] of sparks) {
      const top = highest(now.history, measure[0], measure[3]);
      button.setAttribute("aria-pressed", String(measure === now.measure));
      svg.replaceChildren();
      drawLines(svg, now.history, measure[0], (step) => 100 * step / most, (value) => 28 - 26 * value / top, 1.6);
      for (const line of svg.children) line.setAttribute("vector-effect", "non-scaling-stroke");
    }
    if (numbers.parentElement.open) {
      const steps = [1, ...[0.25, 0.5, 0.75, 1].map((share) => share * most)].filter((step) => step <= done());
      const head = element("tr", {}, element("th", { textContent: "step" }), ...names().map((name) => element("th", { textContent: name, scope: "col" })));
      const body = steps.map((step) => element("tr", {}, element("th", { textContent: String(step), scope: "row" }), ...now.history.map((runs) => {
        const lines = runs.map((run) => maths.points(run.slice(0, step), key));
        return element("td", { textContent: lines.every((line) => line.length) ? now.measure[4](maths.line(key, maths.average(lines)).at(-1)[1]) : "" });
      })));
      numbers.replaceChildren(element("table", { className: "table" }, element("thead", {}, head), element("tbody", {}, ...body)));
    }
  };
  numbers.parentElement.addEventListener("toggle", () => { now.dirty = true; now.plan(); });

  // ---- one group as a tree ----

  const tree = picture("svg", { class: "tree", role: "group", "aria-label": "the group as a tree" });
  const about = element("p", { className: "about", role: "status" }), which = element("p", { className: "quiet" });
  const slider = element("input", { type: "range", min: 1, max: 1, step: 1, value: 1 });
  slider.addEventListener("input", () => look({ step: Number(slider.value) >= Number(slider.max) ? null : Number(slider.value) }));
  const sliderSays = element("output");
  const groupMenu = select([["mixed", "the first with right and wrong ones"]], "mixed", (value) => look({ group: value === "mixed" ? value : Number(value) }));
  const updateMenu = select([["first", "first"], ["last", "last"]], "first", (value) => look({ last: value === "last" }));
  const asTable = element("div", { className: "scroll" });
  const groupPanel = element("section", { className: "panel" }, element("h3", { textContent: "One group: what was written, and which way it is pushed" }),
    element("div", { className: "controls" }, element("label", { className: "wide" }, "step", slider, sliderSays), labelled("group", groupMenu), labelled("update", updateMenu)),
    which, tree, about, element("details", { className: "more" }, element("summary", { textContent: "The group as a table" }), asTable));
  const look = (wish) => { Object.assign(now.look, wish); lookAgain(); now.dirty = true; };
  function lookAgain() {
    if (!done()) return;
    now.look.asked = performance.now();
    now.look.ticket += 1;
    const { group, last, ticket } = now.look;
    tell("look", { arm: now.selected, step: now.look.step ?? done(), group, last, ticket });
  }
  const choose = (text) => {
    now.look.node = text;
    showTree();
    tree.querySelector(".chosen")?.focus();
  };
  const showTree = () => {
    const { seen, node, step } = now.look, arm = now.arms[now.selected];
    slider.max = String(Math.max(1, done()));
    slider.disabled = !done();
    slider.value = String(step ?? slider.max);
    sliderSays.textContent = step === null ? `${seen?.step ?? done()}, the latest` : String(step);
    if (groupMenu.options.length !== Number(arm.prompts) + 1) {
      groupMenu.replaceChildren(groupMenu.options[0], ...Array.from({ length: Number(arm.prompts) }, (_, p) => element("option", { value: String(p), textContent: `${p + 1} of ${arm.prompts}` })));
      if (now.look.group !== "mixed" && now.look.group >= Number(arm.prompts)) now.look.group = "mixed";
      groupMenu.value = String(now.look.group);
    }
    updateMenu.closest("label").hidden = maths.settings(arm, rows).updates === 1;
    about.hidden = !seen;
    asTable.parentElement.hidden = !seen;
    if (!seen) {
      tree.replaceChildren();
      tree.style.height = "0";
      which.textContent = "Train, or take one step: here you see what the model wrote to one question. What completions share is drawn once.";
      return;
    }
    const mixed = now.look.group === "mixed", plain = seen.completions.every((one) => one.right === seen.completions[0].right);
    which.textContent = `${names()[now.selected]}, step ${seen.step}: group ${seen.group + 1} of ${seen.of}` +
      (mixed ? plain ? ", since no group of this step has both right and wrong completions" : ", the first in which some completions are right and some wrong" : ", as you chose") +
      `. The right answer is ${seen.wanted.replace(END, "")}, the sum with its last digit first. In a box: a token, its probability before update ${seen.update} of the batch` +
      " and whether this update asks for more (\u25b2) or less (\u25bc) of it or neither (\u00b7), summed over the completions that share it: the stronger, the darker." + (seen.completions.some((one) => one.bound.includes(1)) ? " \u2702: beyond a bound." : "") +
      (plain && mixed && seen.step > 10 ? " Move the slider back to the first steps to see right and wrong part." : "");
    const nodes = drawTree(tree, seen, node, choose), found = nodes.find((other) => other.text === node);
    about.textContent = found ? maths.words(found, seen.prompt, seen.completions.length) : "Choose a box to read what it says; arrow keys go from box to box.";
    if (asTable.parentElement.open) {
      const head = ["completion", "read as", "right", "reward", "advantage", "pushes"];
      const body = seen.completions.map((one) => [one.text.replace(END, "\u23ce"), maths.read(one.text), one.right ? "yes" : "no", number(one.reward), maths.signed(one.advantage[0]),
        one.push.map((push) => maths.signed(push)).join(" ")]);
      asTable.replaceChildren(element("table", { className: "table" },
        element("thead", {}, element("tr", {}, ...head.map((text) => element("th", { textContent: text, scope: "col" })))),
        element("tbody", {}, ...body.map((cells) => element("tr", {}, ...cells.map((text) => element("td", { textContent: text })))))));
    }
  };
  asTable.parentElement.addEventListener("toggle", () => { now.dirty = true; now.plan(); });

  // ---- the reader's own question ----

  const ask = element("input", { type: "text", value: "407+595=", spellcheck: false, autocomplete: "off", maxLength: 8 });
  const askNow = element("button", { type: "submit", textContent: "Ask" });
  const form = element("form", { className: "ask" }, labelled("", ask), askNow);
  ask.setAttribute("aria-label", "your question");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const found = ask.value.trim().match(/^(\d{1,3})\s*\+\s*(\d{1,3})\s*=?$/);
    askSays.textContent = found ? "" : `${ask.value.trim() || "Nothing"} is no question that the model can read: it knows two numbers of up to three digits, as in 407+595=.`;
    if (!found) return;
    now.question = `${found[1].padStart(3, "0")}+${found[2].padStart(3, "0")}=`;
    ask.value = now.question;
    tell("question", { question: now.question });
    say(`Asked ${now.question}`);
  });
  const askSays = element("p", { className: "quiet", role: "status" });
  const answers = element("table", { className: "answers" });
  const askPanel = element("section", { className: "panel" }, element("h3", { textContent: "Ask it yourself" }),
    element("p", { className: "quiet", textContent: "A sum of two numbers of three digits. It is asked again and again while the model trains; nothing is learned from it." }), form, askSays, answers);
  const showAnswers = () => {
    if (!now.answers || now.answers.question !== now.question) { answers.replaceChildren(); return; }
    const all = names();
    answers.replaceChildren(...now.answers.answers.map((one, i) => {
      const counts = new Map();
      for (const text of one.samples) counts.set(text, (counts.get(text) ?? 0) + 1);
      const verdict = (text) => (text === one.wanted ? "\u2713" : "\u2717");
      const samples = [...counts].sort((a, b) => b[1] - a[1]).map(([text, n]) => `${maths.read(text)} ${verdict(text)}${n > 1 ? ` \u00d7${n}` : ""}`).join(", ");
      return element("tr", {}, element("th", { scope: "row" }, swatch(i), element("span", { textContent: now.arms.length > 1 ? ` ${all[i]}` : "" })),
        element("td", {}, element("p", {}, "greedy: ", element("strong", { textContent: `${maths.read(one.greedy)} ${verdict(one.greedy)}` }),
          ` (writes ${one.greedy.replace(END, "\u23ce")}, last digit first)`),
        element("p", { textContent: `ten samples: ${samples}` }), element("p", { textContent: `probability of the right answer, ${maths.read(one.wanted)}: ${percent(one.right)}` })));
    }));
  };

  // ---- the lines of code ----

  const codes = element("div", { className: "both" }), symbols = element("p", { className: "quiet" });
  const besideMenu = select([["0", ""]], "0", (value) => { now.beside = Number(value); });
  const codePanel = element("section", { className: "panel" }, element("h3", { textContent: "The lines of code of this arm" }),
    element("div", { className: "controls" }, labelled("marked: what differs from", besideMenu)), codes,
    symbols);
  const showCode = () => {
    const code = model.get("code"), all = names(), others = now.arms.map((_, i) => i).filter((i) => i !== now.selected);
    if (!others.includes(now.beside)) now.beside = others[0] ?? -1;
    besideMenu.closest(".controls").hidden = !others.length;
    besideMenu.replaceChildren(...others.map((i) => element("option", { value: String(i), textContent: all[i] })));
    besideMenu.value = String(now.beside);
    const lines = maths.code(now.arms[now.selected], rows, code), other = now.beside < 0 ? lines : maths.code(now.arms[now.beside], rows, code);
    const marks = maths.differing(lines, other), block = element("pre", { className: "lines", tabIndex: 0 });
    block.setAttribute("aria-label", `lines of ${all[now.selected]}`);
    lines.forEach(({ cell, text }, i) => {
      if (cell !== lines[i - 1]?.cell) block.append(element("span", { className: "cell", textContent: cell }));
      block.append(element("span", { className: `mono${marks[i] ? " differs" : ""}`, textContent: text }));
    });
    const parts = [block];
    if (now.beside >= 0) {
      const [mine, theirs] = [now.selected, now.beside].map((i) => maths.settings(now.arms[i], rows));
      const apart = [["lr", "learning rate"], ["updates", "updates"], ["prompts", "prompts"], ["group", "group size"], ["verdict", "reward"], ["values", "rewards"], ["seeds", "seeds"]]
        .filter(([name]) => String(mine[name]) !== String(theirs[name])).map(([name, word]) => `${word} ${mine[name]} against ${theirs[name]}`);
      const same = !marks.includes(true) && lines.length === other.length;
      parts.push(element("p", { className: "quiet", textContent: `${same ? "The lines are the same. " : ""}${apart.length ? `Beside the lines: ${apart.join("; ")}.` : same ? "So are the settings." : ""}` }));
    }
    codes.replaceChildren(...parts);
    const budget = [...lines, ...other].some(({ text }) => text.includes("budget")) ? ", and budget is 5, the longest completion" : "";
    symbols.textContent = `rewards has a number for each completion; logp, old, ref and mask one for each token; group is the size of a group${budget}.`;
  };

  // ---- to take away ----

  const link = element("input", { type: "text", readOnly: true, className: "link" });
  link.setAttribute("aria-label", "the address of these settings");
  const copy = element("button", { type: "button", textContent: "Copy the link" });
  copy.addEventListener("click", async () => {
    link.select();
    try {
      await navigator.clipboard.writeText(link.value);
      shareSays.textContent = "The link is copied.";
    } catch {
      shareSays.textContent = "The browser does not let a page copy: the link is selected, copy it with the keyboard.";
    }
  });
  const save = element("button", { type: "button", textContent: "Download the run as JSON" });
  save.addEventListener("click", () => {
    const text = JSON.stringify(maths.record(now, rows), null, 1);
    const anchor = element("a", { href: URL.createObjectURL(new Blob([text], { type: "application/json" })), download: "playground-run.json" });
    anchor.click();
    shareSays.textContent = "Saved as playground-run.json, where your browser saves files.";
    setTimeout(() => URL.revokeObjectURL(anchor.href), 1000);
  });
  const shareSays = element("p", { className: "quiet", role: "status" });
  const share = element("div", {}, element("div", { className: "controls" }, link, copy, save), shareSays);

  // ---- all of it ----

  root.append(bar, said, chips, panel, arms, element("div", { className: "main" }, curves, settings), groupPanel,
    element("div", { className: "two" }, askPanel, codePanel), share);

  let shown = "";
  const draw = () => {
    const state = JSON.stringify([now.arms, now.selected, now.beside]);
    if (state !== shown) { shown = state; showArms(); showSettings(); }
    showCode();
    showBar();
    showValues();
    showCurves();
    if (now.look.step === null && done() && now.look.seen?.step !== done() && performance.now() - now.look.asked > (now.running ? LOOK_EVERY : 0)) lookAgain();
    showTree();
    showAnswers();
    showResult();
  };

  const fromAddress = () => {
    const challenge = challenges.find(({ id }) => `#${id}` === location.hash);
    if (challenge) {
      open(challenge);
      // The page has a heading of this name, to which the browser goes when all is laid out: later than that.
      const here = () => root.scrollIntoView({ block: "start" });
      requestAnimationFrame(here);
      if (document.readyState !== "complete") addEventListener("load", () => setTimeout(here, 200), { once: true });
    } else if (location.hash.startsWith(BEGIN)) {
      const { arms: wished, limit: length, problems } = maths.parse(location.hash, rows);
      Object.assign(now, { arms: wished, limit: length, selected: 0, challenge: null });
      limit.value = length;
      showChallenge();
      rebuild();
      link.value = location.href;
      say(problems.length ? `Of the address something was left out: ${problems.join("; ")}.` : "Settings from the address.");
    }
  };
  begin(draw);
  link.value = location.href.split("#")[0] + maths.address(now.arms, now.limit);
  fromAddress();
  const moved = () => { fromAddress(); now.plan(); };
  addEventListener("hashchange", moved);
  now.plan();
  return () => { worker.terminate(); removeEventListener("hashchange", moved); };
}

// A run as it is downloaded: its settings, and every measurement of every seed.
maths.record = (now, rows) => ({
  address: maths.address(now.arms, now.limit), engine: now.engine,
  arms: now.arms.map((arm, i) => ({
    name: maths.nameOf(arm, rows), settings: arm, runs: now.history[i].map((steps, seed) => ({ seed: Number(arm.seed) + seed, steps })),
  })),
});

export default { render, maths };
