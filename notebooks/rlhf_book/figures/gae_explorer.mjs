// The GAE explorer: up to six tokens, a critic that is wrong in a way you choose, and what lambda makes of its mistakes.
//
// One file for notebooks (anywidget) and for pages of the book, with nothing but the browser beneath it. The world is
// small enough to be listed: each token is good or bad with probability 1/2, and the response ends with reward 1 at its
// fourth good token or with reward 0 at its third bad one. So bias and spread are no estimates; `maths` computes them over
// all 35 responses, and the tests hold it to the Python functions of the library.

import { element, figure, picture, reader, writer } from "./kit.mjs";

const TOKENS = 6, WINS = 4, LOSES = 3; // good tokens to win, bad ones to lose, and so six at most
const CRITICS = ["right", "offset", "noisy", "blind", "late"];
const BATCH = 64; // responses in the batch whose gradient is compared with the exact one

const maths = {
  // A state is what has been written, a string of 0 and 1. It has ended once it is decided.
  good: (text) => [...text].filter((token) => token === "1").length,
  ended: (text) => maths.good(text) >= WINS || text.length - maths.good(text) >= LOSES,
  reward: (text) => (maths.good(text) >= WINS ? 1 : 0),

  prefixes: () => Array.from({ length: TOKENS }, (_, n) => n).flatMap((n) =>
    Array.from({ length: 2 ** n }, (_, k) => (n === 0 ? "" : k.toString(2).padStart(n, "0")))).filter((text) => !maths.ended(text)),
  responses: () => maths.prefixes().flatMap((text) => [`${text}0`, `${text}1`]).filter(maths.ended),

  // What is left of six tokens when the response ends where it is decided.
  shortened: (six) => Array.from(six, (_, n) => six.slice(0, n + 1)).find(maths.ended),

  // The right critic: the chance that enough of the tokens to come are good, were there always six.
  value: (prefix) => {
    const left = TOKENS - prefix.length, missing = WINS - maths.good(prefix);
    let ways = 0, choose = 1; // binomial coefficients of `left`
    for (let k = 0; k <= left; k += 1) {
      if (k >= missing) ways += choose;
      choose = (choose * (left - k)) / (k + 1);
    }
    return ways / 2 ** left;
  },

  // A number between -1 and 1 that looks drawn, and is the same each time: the noise of a state.
  scatter: (prefix) => {
    const n = parseInt(`1${prefix}`, 2); // 1 to 63
    return ((n * 37 + 11) % 64) / 31.5 - 1;
  },

  // What the critic says of a state. size 0 is the right critic, size 1 the mistake in full.
  opinion: (prefix, kind, size) => {
    const right = maths.value(prefix);
    const wrong = {
      right: () => right,
      offset: () => right + 0.4,
      noisy: () => right + 0.4 * maths.scatter(prefix),
      blind: () => maths.value(""),
      late: () => maths.value(prefix.slice(0, -1)),
    }[kind]();
    return right + size * (wrong - right);
  },

  // TD errors and advantages of one response, from the last token to the first.
  gae: (text, lam, opinion) => {
    const values = Array.from(text, (_, t) => opinion(text.slice(0, t)));
    const deltas = Array(text.length).fill(0), advantages = Array(text.length).fill(0);
    let following = maths.reward(text), nextAdvantage = 0; // the reward, then what the critic promises
    for (let t = text.length - 1; t >= 0; t -= 1) {
      deltas[t] = following - values[t];
      advantages[t] = deltas[t] + lam * nextAdvantage;
      following = values[t];
      nextAdvantage = advantages[t];
    }
    return { values, deltas, advantages };
  },

  every: (lam, kind, size) => maths.responses().map((text) => ({
    text, probability: 0.5 ** text.length, ...maths.gae(text, lam, (prefix) => maths.opinion(prefix, kind, size)),
  })),

  // Everything that is shown of one response: its numbers, and what they are over all ways to go on.
  measure: (response, lam, kind, size) => {
    const all = maths.every(lam, kind, size), text = maths.shortened(response);
    const mine = all.find((one) => one.text === text);
    const tokens = mine.values.map((value, t) => {
      // The same state and the same token; only what follows differs.
      const alike = all.filter((one) => one.text.startsWith(text.slice(0, t + 1)));
      const weight = alike.reduce((sum, one) => sum + one.probability, 0);
      const over = (f) => alike.reduce((sum, one) => sum + one.probability * f(one.advantages[t]), 0) / weight;
      const mean = over((a) => a), spread = Math.sqrt(over((a) => (a - mean) ** 2));
      const right = maths.value(text.slice(0, t)), after = text.slice(0, t + 1);
      const exact = (maths.ended(after) ? maths.reward(after) : maths.value(after)) - right;
      return { right, value, delta: mine.deltas[t], advantage: mine.advantages[t], exact, mean, spread };
    });
    return { text, tokens, ...maths.gradient(all) };
  },

  // The policy gradient, one logit a state: d log pi / d logit is +-1/2 where the policy is even. Its bias and its noise
  // in a batch, both as shares of the exact gradient's length.
  gradient: (all) => {
    const mean = new Map(), exact = new Map();
    let square = 0;
    for (const { text, probability, advantages } of all) {
      for (let t = 0; t < text.length; t += 1) {
        const score = text[t] === "1" ? 0.5 : -0.5, at = text.slice(0, t);
        mean.set(at, (mean.get(at) ?? 0) + probability * score * advantages[t]);
        exact.set(at, (exact.get(at) ?? 0) + probability * score * maths.reward(text));
        square += probability * (score * advantages[t]) ** 2; // states of one response are all different
      }
    }
    const length = (x) => Math.sqrt(x.reduce((sum, value) => sum + value ** 2, 0));
    const variance = Math.max(square - length([...mean.values()]) ** 2, 0), scale = length([...exact.values()]);
    const bias = length([...mean].map(([at, value]) => value - exact.get(at))) / scale;
    const noise = Math.sqrt(variance / BATCH) / scale;
    return { bias, noise, error: Math.hypot(bias, noise) };
  },

  // The lambda, in steps of .05, at which the gradient's error is smallest.
  best: (kind, size) => {
    const tried = Array.from({ length: 21 }, (_, i) => i / 20);
    const errors = tried.map((lam) => maths.gradient(maths.every(lam, kind, size)).error);
    return tried[errors.indexOf(Math.min(...errors))];
  },

  // What happened, in words.
  words: (response, lam, kind, size) => {
    const { text, bias, noise, error } = maths.measure(response, lam, kind, size);
    const percent = (x) => `${Math.round(100 * x)} %`;
    const who = kind === "right" || size === 0 ? "The critic is right." : {
      offset: "The critic expects too much of every state.",
      noisy: "The critic is off by chance, state by state.",
      blind: "The critic sees less of the response than it should.",
      late: "The critic is late by one token.",
    }[kind];
    const off = `With \u03bb = ${lam.toFixed(2)} and a batch of ${BATCH} responses the policy gradient is off by ` +
      `${percent(error)} of its length: ${percent(bias)} bias, ${percent(noise)} noise. `;
    const weight = lam === 0 ? "Only the critic's next opinion counts. " : lam === 1 ? "Only the reward counts, and no mistake of the " +
      "critic can bias it. " : `The reward weighs ${percent(lam ** (text.length - 1))} in the first token's advantage. `;
    return `${who} ${off}${weight}The error is smallest near \u03bb = ${maths.best(kind, size).toFixed(2)}.`;
  },
};

const STYLE = `
.gae-explorer .token-button { white-space: nowrap; padding: 0.15rem 0.4rem; }
.gae-explorer input[type=range] { min-width: 0; width: 8rem; margin: 0; accent-color: #3b8fcf; }
.gae-explorer :is(th, td) { padding: 0.1rem 0.2rem; border: 0; background: none; font-weight: normal; text-align: start;
  font-variant-numeric: tabular-nums; }
.gae-explorer .token { width: 5em; } .gae-explorer .value { width: 7.4em; }
.gae-explorer .bar { position: relative; }
.gae-explorer .number { position: absolute; top: 0; line-height: 1.15rem; white-space: nowrap; font-size: 0.9em; }
.gae-explorer .number.above { right: calc(50% + 0.3em); }
.gae-explorer .number.below { left: min(50% + 0.3em, 100% - 3.2em); }
.gae-explorer svg { display: block; width: 100%; height: 1.7rem; overflow: visible; }
.gae-explorer svg line { stroke: currentColor; } .gae-explorer svg .axis { stroke-opacity: 0.5; }
.gae-explorer .exact { fill: none; stroke: currentColor; stroke-width: 1.5; }
.gae-explorer tr.over { opacity: 0.45; }
@media (max-width: 480px) { .gae-explorer { font-size: 0.78rem; } .gae-explorer .token { width: 4.6em; } .gae-explorer .value { width: 4.4em; } }
`;
const REACH = 1; // the bars' scale, from -REACH to REACH
const NAMES = { right: "right", offset: "too hopeful", noisy: "noisy", blind: "sees the prompt alone", late: "one token late" };

const shown = (x) => x.toFixed(2).replace(/^-(0\.00)$/, "$1").replace("-", "\u2212");
const place = (x) => 50 + (Math.max(-REACH, Math.min(REACH, x)) / REACH) * 50;

// One bar from zero and its number; for an advantage also the mean and the spread over all ways to go on, and the truth.
function bar(value, label, about) {
  const svg = picture("svg", { viewBox: "0 0 100 20", preserveAspectRatio: "none", role: "img" });
  const line = (x1, y1, x2, y2, kind) =>
    picture("line", { x1, y1, x2, y2, class: kind, "vector-effect": "non-scaling-stroke" });
  svg.append(line(50, 0, 50, 20, "axis"));
  const from = place(Math.min(value, 0)), to = place(Math.max(value, 0));
  svg.append(picture("rect", { x: from, y: 4, width: to - from, height: 7, class: value < 0 ? "down" : "up" }));
  let said = `${label} ${shown(value)}`;
  if (about) {
    const { exact, mean, spread } = about;
    svg.append(line(place(mean - spread), 15, place(mean + spread), 15, "spread"), line(place(mean), 12.5, place(mean), 17.5, "mean"));
    svg.append(picture("path", { d: `M ${place(exact)} 2 V 13`, class: "exact", "vector-effect": "non-scaling-stroke", "stroke-dasharray": "3 2" }));
    said += `, exact ${shown(exact)}, mean ${shown(mean)}, spread ${shown(spread)}`;
  }
  svg.setAttribute("aria-label", said);
  const number = element("span", { className: value < 0 ? "number below" : "number above", textContent: shown(value) });
  number.setAttribute("aria-hidden", "true"); // the bar has said it
  return element("div", { className: "bar" }, svg, number);
}

function render({ model, el }) {
  const read = reader(model);
  const write = writer(model);
  const state = () => [read("response", "101101"), read("lam", 0.95), read("critic", "offset"), read("size", 0.5)];

  const root = figure(model, "gae-explorer", STYLE);

  const slider = (name, text, step) => {
    const input = element("input", { type: "range", min: 0, max: 1, step, className: name });
    const out = element("output");
    input.addEventListener("input", () => write({ [name]: Number(input.value) }));
    return { label: element("label", {}, text, input, out), show: (value) => { input.value = value; out.textContent = value.toFixed(2); } };
  };
  const lam = slider("lam", "\u03bb ", 0.05), size = slider("size", "how wrong ", 0.1);
  const critic = element("select", { className: "critic" });
  for (const kind of CRITICS) critic.append(element("option", { value: kind, textContent: NAMES[kind] }));
  critic.addEventListener("change", () => write({ critic: critic.value }));

  const body = element("tbody");
  const rows = Array.from({ length: TOKENS }, (_, t) => {
    const button = element("button", { type: "button", className: "token-button" });
    button.addEventListener("click", () => {
      const response = [...state()[0]];
      response[t] = response[t] === "1" ? "0" : "1";
      write({ response: response.join("") });
    });
    const cells = [element("td"), element("td"), element("td")];
    body.append(element("tr", {}, element("td", {}, button), ...cells));
    return { row: body.lastChild, button, cells };
  });
  const head = element("tr", {}, element("th", { className: "token", textContent: "token", scope: "col" }),
    element("th", { className: "value", textContent: "V (right)", scope: "col" }),
    element("th", { textContent: "TD error \u03b4", scope: "col" }),
    element("th", { textContent: "advantage A", scope: "col" }));
  const said = element("p", { className: "said", role: "status" });
  root.append(
    element("div", { className: "controls" }, lam.label, element("label", {}, "critic ", critic), size.label),
    element("table", {}, element("thead", {}, head), body),
    element("p", { className: "key", textContent: "Dashed: the exact advantage. Thin line below a bar: mean and spread of " +
      "the estimate over all ways in which the response may go on. Press a token to change it." }),
    said,
  );

  const draw = () => {
    const [response, lambda, kind, amount] = state();
    lam.show(lambda);
    size.show(amount);
    critic.value = kind;
    const { tokens } = maths.measure(response, lambda, kind, amount);
    rows.forEach(({ row, button, cells }, t) => {
      const good = response[t] === "1", token = tokens[t];
      row.className = token ? "" : "over"; // the response has ended before
      button.disabled = !token;
      button.textContent = token ? (good ? "good" : "bad") : "\u2013";
      button.setAttribute("aria-label", token ? `token ${t + 1}: ${good ? "good" : "bad"}; press to change` : `no token ${t + 1}`);
      cells[0].textContent = token ? `${shown(token.value)} (${shown(token.right)})` : "";
      cells[1].replaceChildren(...(token ? [bar(token.delta, `TD error of token ${t + 1}`)] : []));
      cells[2].replaceChildren(...(token ? [bar(token.advantage, `advantage of token ${t + 1}`, token)] : []));
    });
    said.textContent = maths.words(response, lambda, kind, amount);
  };
  for (const name of ["response", "lam", "critic", "size"]) model.on(`change:${name}`, draw);
  draw();
  el.append(root);
}

export default { render, maths };
