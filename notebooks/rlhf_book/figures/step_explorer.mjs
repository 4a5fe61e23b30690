// The step explorer: four completions of one prompt whose steps have scores, one number for each completion, the vote
// that these numbers decide, and the advantage that each step gets under one of several payments.
//
// One file for notebooks (anywidget) and for pages of the book, with nothing but the browser beneath it. What it
// computes is in `maths`, which the tests hold to the library's advantages, aggregates and votes.

import { buttons, element, figure, reader, writer } from "./kit.mjs";

const maths = {
  levels: [0.1, 0.5, 0.9], // a click takes a step's score to the next one
  most: 6, // steps of a completion
  right: "q", // the answer that is right
  aggregates: { min: "min", mean: "mean", last: "last", product: "product" },
  payments: {
    outcome: "outcome alone",
    sum: "sum from here on",
    own: "own step and outcome",
    potential: "potential: outcome less the score before",
    change: "potential: change of the score",
  },

  examples: {
    "a lucky answer": { scores: [[0.9, 0.9, 0.9], [0.9, 0.1, 0.5], [0.9, 0.5, 0.1], [0.5, 0.1, 0.1]], answers: ["q", "q", "f", "f"] },
    "easy steps at the end": { scores: [[0.9, 0.5], [0.1, 0.9, 0.9, 0.9, 0.9], [0.1, 0.9, 0.9, 0.9, 0.9], [0.5, 0.1]], answers: ["q", "f", "f", "k"] },
    "a doubt on the way": { scores: [[0.1, 0.5, 0.9, 0.9], [0.5, 0.5, 0.1], [0.5, 0.5, 0.5], [0.5, 0.1, 0.1]], answers: ["q", "f", "f", "k"] },
    "all wrong": { scores: [[0.5, 0.1], [0.5, 0.1, 0.1], [0.1, 0.1], [0.5, 0.5, 0.1]], answers: ["f", "f", "k", "k"] },
  },

  mean: (xs) => xs.reduce((a, b) => a + b, 0) / xs.length,
  number: {
    min: (s) => Math.min(...s),
    mean: (s) => maths.mean(s),
    last: (s) => s[s.length - 1],
    product: (s) => s.reduce((a, b) => a * b, 1),
  },
  // Minus the mean, divided by the sample standard deviation; exactly 0 where all are equal.
  zscore: (xs) => {
    if (Math.max(...xs) === Math.min(...xs)) return xs.map(() => 0);
    const m = maths.mean(xs), s = Math.sqrt(xs.reduce((sum, x) => sum + (x - m) ** 2, 0) / (xs.length - 1));
    return xs.map((x) => (x - m) / (s + 1e-4));
  },
  toGo: (xs) => xs.map((_, k) => xs.slice(k).reduce((a, b) => a + b, 0)),

  // The advantage of each step of each completion; the last entry of each is that of the answer.
  advantages: (scores, rewards, payment) => {
    const z = maths.zscore(rewards), start = maths.mean(rewards);
    if (payment === "outcome") return scores.map((s, i) => [...s, 0].map(() => z[i]));
    if (payment === "own") {
      const marks = maths.zscore(scores.flat());
      let next = 0;
      return scores.map((s, i) => [...s.map(() => z[i] + marks[next++]), z[i]]);
    }
    if (payment === "sum") {
      const marks = maths.zscore(scores.flatMap((s, i) => [...s, rewards[i]]));
      let next = 0;
      return scores.map((s) => maths.toGo([...s, 0].map(() => marks[next++])));
    }
    return scores.map((s, i) => {
      const before = [start, ...s], after = [...s, rewards[i]];
      return before.map((phi, k) => (payment === "potential" ? rewards[i] : after[k]) - phi);
    });
  },

  // The answers with their weights, the heaviest ones, and the completions with the largest number.
  compute: (scores, answers, aggregate, payment) => {
    const rewards = answers.map((a) => (a === maths.right ? 1 : 0));
    const numbers = scores.map(maths.number[aggregate]);
    const votes = {};
    answers.forEach((a, i) => { votes[a] = (votes[a] ?? 0) + numbers[i]; });
    const heaviest = Math.max(...Object.values(votes)), top = Math.max(...numbers);
    return {
      rewards, numbers, votes,
      winners: Object.keys(votes).filter((a) => votes[a] > heaviest - 1e-9).sort(),
      best: numbers.flatMap((x, i) => (x > top - 1e-9 ? [i] : [])),
      advantages: maths.advantages(scores, rewards, payment),
    };
  },

  say: (x, digits = 2) => {
    const shown = Math.abs(x).toFixed(digits);
    return (x < 0 && Number(shown) !== 0 ? "\u2212" : "") + shown;
  },
  list: (words) => words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words[words.length - 1]}`,

  words: (scores, answers, aggregate, payment) => {
    const found = maths.compute(scores, answers, aggregate, payment), { say } = maths;
    const votes = Object.keys(found.votes).sort().map((a) => `${a} ${say(found.votes[a])}`).join(", ");
    const won = found.winners.length > 1 ? `a tie of ${maths.list(found.winners)}`
      : `${found.winners[0]} wins, which is ${found.winners[0] === maths.right ? "right" : "wrong"}`;
    const first = found.advantages.map((a) => a[0]), most = Math.max(...first);
    const top = first.flatMap((a, i) => (a > most - 1e-9 ? [i + 1] : []));
    const pays = maths.payments[payment];
    const who = top.length === first.length ? "all first steps get the same" :
      `the largest advantage of a first step is ${say(most)}, of completion${top.length > 1 ? "s" : ""} ${maths.list(top.map(String))}`;
    return `Votes weighted by the ${aggregate}: ${votes}; ${won}. Best single completion by the ${aggregate}: ` +
      `${maths.list(found.best.map((i) => String(i + 1)))}. Paid by "${pays}": ${who}.`;
  },
};

const STYLE = `
.step-explorer button:disabled { opacity: 0.4; cursor: default; }
.step-explorer label { display: inline-flex; flex-wrap: wrap; gap: 0.1rem 0.4rem; align-items: center; max-width: 100%; min-width: 0; }
.step-explorer select { min-width: 0; text-overflow: ellipsis; }
.step-explorer .row { display: grid; grid-template-columns: 7.2rem minmax(0, 1fr) 4.6rem; gap: 0.3rem 0.6rem; align-items: start;
  border-top: 1px solid; padding: 0.4rem 0; }
.step-explorer .steps { display: flex; flex-wrap: wrap; gap: 0.3rem; }
.step-explorer .cell { width: 3.3rem; text-align: center; font-variant-numeric: tabular-nums; }
.step-explorer .cell :is(button, .box) { width: 100%; padding: 0.1rem 0; box-sizing: border-box; }
.step-explorer .box { display: block; border: 1px dashed currentColor; border-radius: 0.3rem; line-height: 1.6rem; }
.step-explorer .adv { display: block; font-size: 0.85em; border-bottom: 0.3rem solid transparent; }
.step-explorer .up { border-bottom-color: #3b8fcf; } .step-explorer .down { border-bottom-color: #d9671e; }
.step-explorer .number { text-align: end; font-variant-numeric: tabular-nums; }
.step-explorer .won { font-weight: 700; }
.step-explorer .lengths { display: flex; flex-wrap: wrap; gap: 0.3rem; margin-top: 0.2rem; }
.step-explorer .lengths button { padding: 0 0.4rem; white-space: nowrap; }
@media (max-width: 480px) { .step-explorer { font-size: 0.8rem; } .step-explorer .said { min-height: 8.4em; }
  .step-explorer .row { grid-template-columns: 3.9rem minmax(0, 1fr) 3.2rem; gap: 0.2rem 0.3rem; }
  .step-explorer .lengths { flex-direction: column; } .step-explorer .cell { width: 2.6rem; } }
`;

function render({ model, el }) {
  const start = maths.examples["a lucky answer"];
  const read = reader(model);
  const write = writer(model);
  const state = () => [
    read("scores", start.scores), read("answers", start.answers), read("aggregate", "min"), read("payment", "outcome"),
  ];
  const copied = () => read("scores", start.scores).map((s) => [...s]);

  const root = figure(model, "step-explorer", STYLE);
  const examples = buttons(maths.examples, write, ({ scores, answers }) => ({ scores: scores.map((s) => [...s]), answers: [...answers] }));
  const menu = (className, options) => {
    const select = element("select", { className });
    for (const [value, text] of Object.entries(options)) select.append(element("option", { value, textContent: text }));
    select.addEventListener("change", () => write({ [className]: select.value }));
    return select;
  };
  const aggregate = menu("aggregate", maths.aggregates), payment = menu("payment", maths.payments);
  const rows = element("div", { className: "rows" });
  const said = element("p", { className: "said", role: "status" });
  root.append(
    element("div", { className: "controls" }, examples, element("label", {}, "a completion counts by its ", aggregate),
      element("label", {}, "advantage: ", payment)),
    rows, said,
  );

  // Rows are made again when lengths change; the control that had the focus gets it back by its name.
  const draw = () => {
    const now = state(), [scores, answers] = now, found = maths.compute(...now), { say } = maths;
    aggregate.value = now[2];
    payment.value = now[3];
    const active = (el.getRootNode?.() ?? document).activeElement, held = active?.dataset?.key;
    const advantage = (a) => element("span", {
      className: `adv ${Math.abs(a) < 5e-3 ? "" : a > 0 ? "up" : "down"}`, textContent: `${a > 5e-3 ? "+" : ""}${say(a)}`,
    });
    rows.replaceChildren(...scores.map((own, i) => {
      const steps = own.map((score, k) => {
        const button = element("button", { type: "button", className: "score", textContent: say(score, 1) });
        button.dataset.key = `${i}-${k}`;
        button.setAttribute("aria-label", `completion ${i + 1}, score of step ${k + 1}: ${say(score, 1)}; ` +
          `its advantage: ${say(found.advantages[i][k])}`);
        button.addEventListener("click", () => {
          const changed = copied(), at = maths.levels.findIndex((x) => x > score + 1e-9);
          changed[i][k] = maths.levels[at < 0 ? 0 : at];
          write({ scores: changed });
        });
        return element("span", { className: "cell" }, button, advantage(found.advantages[i][k]));
      });
      steps.push(element("span", { className: "cell" }, element("span", { className: "box", textContent: `= ${answers[i]}` }),
        advantage(found.advantages[i][own.length])));
      const change = (text, allowed, made) => {
        const button = element("button", { type: "button", textContent: text, disabled: !allowed });
        button.dataset.key = `${i}-${text}`;
        button.setAttribute("aria-label", `completion ${i + 1}: ${text}`);
        button.addEventListener("click", () => { const changed = copied(); made(changed[i]); write({ scores: changed }); });
        return button;
      };
      const won = found.best.includes(i);
      return element("div", { className: "row" },
        element("div", {}, `${i + 1}: ${found.rewards[i] ? "right" : "wrong"}`,
          element("div", { className: "lengths" },
            change("longer", own.length < maths.most, (s) => s.push(0.9)),
            change("cut", own.length > 1, (s) => s.pop()))),
        element("div", { className: "steps" }, ...steps),
        element("div", { className: `number ${won ? "won" : ""}` }, say(found.numbers[i]), won ? " \u2605" : ""));
    }));
    if (held) {
      const again = rows.querySelector(`[data-key="${held}"]`);
      (again && !again.disabled ? again : rows.querySelector(`[data-key^="${held.split("-")[0]}-"]`))?.focus();
    }
    said.textContent = maths.words(...now);
  };
  for (const name of ["scores", "answers", "aggregate", "payment"]) model.on(`change:${name}`, draw);
  draw();
  el.append(root);
}

export default { render, maths };
