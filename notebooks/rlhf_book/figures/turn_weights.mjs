// Who wrote each token: one transcript of an agent, and under every token its return and its weight in the loss, for
// each way to keep the books: replies trained or not, what divides, which rewards a token is credited with, what a call costs.
//
// One file for notebooks (anywidget) and for pages of the book, with nothing but the browser beneath it. What it
// computes is in `maths`, which the tests hold to the library's loss and to all 55 transcripts of the chapter.

import { choice, element, figure, reader, say, writer } from "./kit.mjs";

const TOKENS = [..."?k4?q7!4711=11", "end"], HEARD = [2, 5, 9, 10]; // of the chapter's first transcript
const CALL = 8; // where the calculator is called: the last token of "!47"
const GAMMA = 0.8;
const TALL = 38; // a weight of 1, in pixels
const NAMES = 50, COLUMN = 43; // pixels that the names of rows and one token take at least

const sum = (xs) => xs.reduce((a, b) => a + b, 0);

const maths = {
  tokens: TOKENS,
  own: TOKENS.map((_, t) => (HEARD.includes(t) ? 0 : 1)),
  rewards: (price) => TOKENS.map((_, t) => (t === TOKENS.length - 1 ? 1 : t === CALL && price ? -price : 0)),

  replies: { masked: "masked", trained: "in the loss" },
  divisors: { nothing: "nothing", "policy tokens": "policy tokens (11)", "all tokens": "all tokens (15)", turns: "turns (4)" },
  credits: { "one number": "one number", "to go": "from here on", reset: "reset at a reply",
    "by token": "\u00d7 0.8 a token", "by policy token": "\u00d7 0.8 a policy token" },
  prices: { 0: "nothing", 0.1: "0.1", 0.3: "0.3" },

  // What each token is credited with: the reward paid after it, and a share of the next token's return.
  returns: (own, rewards, credit) => {
    if (credit === "one number") return rewards.map(() => sum(rewards));
    const share = {
      "to go": () => 1,
      reset: (t) => own[t] && own[t + 1],
      "by token": () => GAMMA,
      "by policy token": (t) => (own[t + 1] ? GAMMA : 1),
    }[credit];
    const found = [...rewards];
    for (let t = own.length - 2; t >= 0; t -= 1) found[t] += share(t) * found[t + 1];
    return found;
  },

  // Neighbours of one writer: turns of the policy and replies of the environment.
  parts: (own) => own.reduce((parts, who, t) => {
    if (t && own[t - 1] === who) parts.at(-1).push(t);
    else parts.push([t]);
    return parts;
  }, []),
  count: (own, divisor) => ({ nothing: 1, "policy tokens": sum(own), "all tokens": own.length,
    turns: maths.parts(own).filter(([t]) => own[t]).length })[divisor],

  // What multiplies the gradient of each token's log-probability.
  weights: (own, returns, replies, divisor) =>
    returns.map((value, t) => (own[t] || replies === "trained" ? value / maths.count(own, divisor) : 0)),

  show: (x) => (x === 0 ? "0" : say(x, Math.abs(x) < 0.0995 ? 3 : 2)),

  // Why a choice is not the policy gradient, and the cosine with it in section 4, where this choice alone is made.
  reasons: {
    trained: ["the replies are trained, so what was heard before a success is made more likely as the policy's own words", 0.798],
    "policy tokens": ["a transcript counts less a token the more the policy writes", 1],
    "all tokens": ["a transcript counts less the more its tools say", 0.974],
    turns: ["a transcript counts less the more turns it has", 0.988],
    reset: ["a call gets no credit for the answer that it made possible", 0.516],
    "by token": ["a call counts less the more its tool says", 0.928],
    "by policy token": ["a call counts less the later the reward comes", 0.995],
  },
  wrong: (replies, divisor, credit) => [replies === "trained" && credit === "reset" ? "" : replies, divisor, credit]
    .filter((name) => name in maths.reasons),

  // What the choices do, in words.
  words: (replies, divisor, credit, price) => {
    const { own, show } = maths, weights = maths.weights(own, maths.returns(own, maths.rewards(price), credit), replies, divisor);
    const range = (who) => {
      const some = weights.filter((_, t) => own[t] === who), [low, high] = [Math.min(...some), Math.max(...some)].map(show);
      return low === high ? low : `${low} to ${high}`;
    };
    const facts = `The policy's tokens weigh ${range(1)}, the replies ${range(0)}. `;
    const wrong = maths.wrong(replies, divisor, credit), why = wrong.map((name) => {
      const [reason, cosine] = maths.reasons[name];
      return `because ${reason} (${say(cosine, 3)}${name === "policy tokens" ? ", as all write two tokens there" : ""})`;
    }).join(", and ");
    const verdict = wrong.length === 0 ? "This is the policy gradient. "
      : `Biased, ${why}. In brackets: its cosine with the true gradient in section 4${wrong.length > 1 ? ", each alone" : ""}${price ? ", without a price" : ""}. `;
    const silent = replies === "trained" && credit === "reset" ? "The replies are in the loss, but their return is 0. " : "";
    const paid = {
      "one number": price ? "The price is part of the reward; the answer pays for the call as well, and that is no bias." : "",
      "to go": price ? "The price is part of the reward; the answer does not pay for the call before it."
        : "Nothing is paid on the way, so all have the same return.",
      reset: price ? "The call earns its price alone, and is pushed down although it was right." : "",
    }[credit] ?? "";
    return facts + verdict + silent + paid;
  },
};

const STYLE = `
.turn-weights .pick { display: flex; flex-wrap: wrap; align-items: center; gap: 0.2rem 0.5rem; }
.turn-weights table { margin: 0.2rem 0 0.4rem; } .turn-weights :is(td, thead th) { text-align: center; padding: 0.1rem 0; font-variant-numeric: tabular-nums; }
.turn-weights thead th { white-space: nowrap; } .turn-weights tr > th:first-child { width: 3.6em; text-align: start; padding: 0; font-size: 0.9em; }
.turn-weights .number > td { font-size: 0.78em; }
.turn-weights .box { display: block; margin: 0 2px; line-height: 1.7; border: 2px solid #3b8fcf; background: #3b8fcf40; }
.turn-weights .heard .box { border: 2px dashed #d9671e; border-radius: 1em; background: #d9671e30; }
.turn-weights .room { display: block; position: relative; height: ${Math.round(1.35 * TALL)}px; }
.turn-weights .room i { position: absolute; left: 25%; width: 50%; background: #3b8fcf; }
.turn-weights .heard .room i { background: repeating-linear-gradient(45deg, #d9671e 0 3px, transparent 3px 5px); }
.turn-weights .room::after { content: ""; position: absolute; left: 0; right: 0; top: ${TALL}px; border-top: 1px solid currentColor; opacity: 0.4; }
.turn-weights .number > :is(td, th) { vertical-align: bottom; } .turn-weights .said { min-height: 8.4em; }
@media (max-width: 480px) { .turn-weights .said { min-height: 14em; } .turn-weights .number > td { font-size: 0.7em; }
  .turn-weights tr > :is(th, th:first-child) { font-size: 0.75em; } }
`;

function render({ model, el }) {
  const read = reader(model), write = writer(model), { own } = maths;
  const state = () => [read("replies", "masked"), read("divisor", "nothing"), read("credit", "one number"), read("price", 0)];

  const root = figure(model, "turn-weights", STYLE);
  const picks = [["replies", "replies", maths.replies], ["divisor", "divided by", maths.divisors],
    ["credit", "return", maths.credits], ["price", "a calculation costs", maths.prices]].map(([name, label, options]) => {
    const [group, press] = choice(label, options, (value) => write({ [name]: name === "price" ? Number(value) : value }));
    return { press, pick: element("div", { className: "pick" }, element("span", {}, label), group) };
  });
  const transcript = element("div"), said = element("p", { className: "said", role: "status" });
  root.append(element("div", { className: "controls" }, ...picks.map(({ pick }) => pick)), transcript,
    element("p", { className: "key" }, "Square: the policy wrote it. Round and dashed: the environment did. The last token is paid 1 for " +
      "the right sum. Weight: what multiplies the gradient of the token's log-probability."), said);

  // A turn stays with its reply, and as many of these stand in a line as have room.
  const room = () => Math.floor(((root.clientWidth || 736) - NAMES) / COLUMN);
  const lines = () => {
    const parts = maths.parts(own), made = [[]];
    for (let k = 0; k < parts.length; k += 2) {
      const next = parts.slice(k, k + 2), line = made.at(-1);
      if (line.length && [...line, ...next].flat().length > room()) made.push(next);
      else line.push(...next);
    }
    return made;
  };

  function draw() {
    const now = state(), returns = maths.returns(own, maths.rewards(now[3]), now[2]);
    const weights = maths.weights(own, returns, now[0], now[1]);
    picks.forEach(({ press }, i) => press(now[i]));
    const shown = lines(), columns = Math.max(...shown.map((parts) => parts.flat().length));
    let turn = 0;
    transcript.replaceChildren(...shown.map((parts) => {
      const cells = parts.flat(), rest = Array.from({ length: columns - cells.length }, () => 0);
      const row = (name, fill, kind = "") => element("tr", { className: kind }, element("th", { scope: "row", textContent: name }),
        ...cells.map((t) => element("td", { className: own[t] ? "" : "heard" }, ...fill(t))), ...rest.map(() => element("td")));
      const head = parts.map(([t, ...more]) => element("th",
        { scope: "colgroup", colSpan: 1 + more.length, textContent: own[t] ? `turn ${turn += 1}` : "reply" }));
      const bar = (x) => element("i", { style: `top: ${TALL * (1 - Math.max(0, x))}px; height: ${TALL * Math.abs(x)}px` });
      return element("table", {}, element("thead", {}, element("tr", {}, element("th"), ...head, ...rest.map(() => element("td")))),
        element("tbody", {}, row("token", (t) => [element("span", { className: "box", textContent: TOKENS[t] })]),
          row("return", (t) => [maths.show(returns[t])], "number"),
          row("weight", (t) => [element("span", { className: "room", ariaHidden: "true" }, bar(weights[t])), maths.show(weights[t])], "number weight")));
    }));
    said.textContent = maths.words(...now);
  }
  for (const name of ["replies", "divisor", "credit", "price"]) model.on(`change:${name}`, draw);
  let had;
  new ResizeObserver(() => {
    if (had !== room()) draw();
    had = room();
  }).observe(root);
  draw();
  el.append(root);
}

export default { render, maths };
