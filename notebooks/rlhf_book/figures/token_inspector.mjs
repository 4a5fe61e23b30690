// A window into recorded training steps: a group of completions, each token coloured by the weight that a row gives to it.
//
// One file for notebooks (anywidget) and for pages of the book, with nothing but the browser beneath it. All factors are
// given to it as rlhf_book.figures.inspector.inspector_table makes them; it multiplies nothing but for the words.

import { element, figure, writer } from "./kit.mjs";

const MINUS = "\u2212";

const maths = {
  // One number of a token: a factor may be the same for a whole completion, or for the whole group.
  at: (value, i, t) => {
    const own = Array.isArray(value) ? value[i] : value;
    return Array.isArray(own) ? own[t] : own;
  },

  // The factors of one token in one row, by name; `relative` is the weight in mean sizes of the row's weights that are not 0.
  factors: (kinds, step, group, row, i, t) => {
    const found = {};
    kinds.forEach((kind, k) => { found[kind] = maths.at(group.values[group.rows[row][k]], i, t); });
    found.relative = step.scale[row] > 0 ? found.weight / step.scale[row] : 0;
    return found;
  },

  // share x advantage x gate x correct x trust + pull
  product: (f) => (f.advantage === 0 ? 0 : f.share * f.advantage * f.gate * f.correct * f.trust) + f.pull,

  cut: (f) => f.advantage !== 0 && f.gate * f.correct * f.trust === 0,

  total: (kinds, step, group, row, i) =>
    group.tokens[i].reduce((sum, _, t) => sum + maths.factors(kinds, step, group, row, i, t).relative, 0),

  // Three digits; a plus or minus in front if it is a weight.
  number: (x, signed = false) => {
    if (x === null || x === undefined) return "none";
    if (x === 0) return "0";
    const size = Math.abs(x), [digits, power] = size.toExponential(2).split("e").map(Number);
    const text = size >= 0.001 && size < 10000 ? `${Number(size.toPrecision(3))}` : `${digits}e${power < 0 ? MINUS : ""}${Math.abs(power)}`;
    return `${x < 0 ? MINUS : signed ? "+" : ""}${text}`;
  },

  relative: (x) => `${Math.abs(x) < 0.005 ? "" : x < 0 ? MINUS : "+"}${Math.abs(x).toFixed(2)}`,

  // Why a token has the weight that it has.
  reason: (f) => {
    const rest = f.pull === 0 ? "" : "; the KL penalty alone acts";
    if (f.advantage === 0) return `its advantage is 0${rest}`;
    if (f.gate === 0) return `the gate gives it no gradient${rest}`;
    if (f.correct === 0) return `the correction leaves it out${rest}`;
    if (f.trust === 0) return `trust leaves it out${rest}`;
    return f.weight > 0 ? "pushed up" : f.weight < 0 ? "pushed down" : "not pushed";
  },

  // A share as the fraction that it is, 1/(64 \u00d7 5): over completions, tokens of this one or of the batch, or the budget.
  // A number where the row divides by something else, or the fraction is not the share.
  share: (f, row, step, own) => {
    const found = { completions: step.completions, tokens: step.tokens, budget: step.budget, own };
    const parts = row.divisors.map((name) => found[name]), whole = parts.reduce((a, b) => a * b, 1);
    if (parts.length === 0 || Math.abs(f.share * whole - 1) > 1e-3) return maths.number(f.share);
    return parts.length === 1 ? `1/${parts[0]}` : `1/(${parts.join(" \u00d7 ")})`;
  },

  visible: (text) => (text === "" ? "\u25a0" : text.replace(/ /g, "\u00b7").replace(/\n/g, "\u21b5")),

  spoken: (text) => (text === "" ? "end" : text.trim() === "" ? "space" : text.trim()),

  formula: (f, cells, share = maths.number(f.share)) => {
    const { number } = maths, factors = [`share ${share}`, `advantage ${number(f.advantage, true)}`, `gate ${number(f.gate)}`];
    if (cells.correct) factors.push(`correction ${number(f.correct)}`);
    if (cells.trust) factors.push(`trust ${number(f.trust)}`);
    const policy = f.advantage === 0 ? "advantage 0" : factors.join(" \u00d7 ");
    const sign = f.pull < 0 ? MINUS : "+";
    return `weight ${number(f.weight, true)} = ${policy}${f.pull === 0 ? "" : ` ${sign} KL pull ${number(Math.abs(f.pull))}`}`;
  },

  // What a step's batch gives to one row, in a sentence.
  words: (step, row) => {
    const n = step.silent[row], all = step.credited[row];
    if (all === 0) return `${row}: no token of the batch has an advantage.`;
    return `${row}: ${n === 0 ? "none" : n === all ? "all" : n} of the batch's ${all} tokens with an advantage get${n === 1 ? "s" : ""} no gradient from it.`;
  },
};

const STYLE = `
.token-inspector { color: var(--jp-ui-font-color1, inherit); font-size: 0.9rem; line-height: 1.45; max-width: 52rem; }
.token-inspector .controls { display: flex; flex-wrap: wrap; gap: 0.5rem 1rem; align-items: center; margin-bottom: 0.4rem; }
.token-inspector select { font: inherit; color: inherit; background: transparent; border: 1px solid currentColor;
  border-radius: 0.3rem; padding: 0.15rem 0.4rem; min-height: 1.75rem; max-width: 100%; }
.token-inspector select:focus-visible, .token-inspector .token:focus-visible { outline: 3px solid #3b8fcf; outline-offset: 2px; }
.token-inspector label { display: inline-flex; flex-wrap: wrap; gap: 0.4rem; align-items: center; max-width: 100%; }
.token-inspector p { margin: 0.35rem 0; overflow-wrap: anywhere; }
.token-inspector code, .token-inspector .token { font-family: ui-monospace, Menlo, Consolas, monospace; }
.token-inspector code { background: none; border: none; color: inherit; padding: 0; font-size: 0.95em; }
.token-inspector .key { display: flex; flex-wrap: wrap; gap: 0.3rem 1rem; align-items: center; }
.token-inspector .completion { border-top: 1px solid rgba(128, 128, 128, 0.45); padding: 0.35rem 0; }
.token-inspector .head { font-size: 0.85rem; }
.token-inspector .line { display: grid; grid-template-columns: 8rem minmax(0, 1fr); gap: 3px; margin: 0.2rem 0; }
.token-inspector .tokens { display: flex; flex-wrap: wrap; gap: 3px; align-items: center; }
.token-inspector .name { font-size: 0.8rem; line-height: 1.6rem; overflow-wrap: anywhere; }
@media (max-width: 480px) { .token-inspector .line { grid-template-columns: minmax(0, 1fr); } }
.token-inspector .examples { display: flex; flex-wrap: wrap; gap: 0.3rem 0.5rem; align-items: center; margin-bottom: 0.5rem; }
.token-inspector .examples button { font: inherit; color: inherit; background: transparent; border: 1px solid currentColor;
  border-radius: 0.3rem; padding: 0.1rem 0.5rem; min-height: 1.75rem; cursor: pointer; }
.token-inspector .examples button:focus-visible { outline: 3px solid #3b8fcf; outline-offset: 2px; }
.token-inspector .token, .token-inspector .key span { box-sizing: border-box; min-width: 1.6rem; min-height: 1.6rem; margin: 0;
  font-size: 0.9rem; line-height: 1.2; padding: 0.1rem 0.25rem; color: inherit; background: transparent; cursor: pointer;
  border: 1px solid transparent; border-bottom: 3px solid transparent; border-radius: 2px; white-space: pre; text-align: center; }
.token-inspector .key span { cursor: default; display: inline-block; }
.token-inspector .key .up, .token-inspector .up { border-bottom: 3px solid #0072B2; }
.token-inspector .key .down, .token-inspector .down { border-bottom: 3px dashed #D55E00; }
.token-inspector .key .cut, .token-inspector .cut { border-style: dotted; border-width: 1px 1px 3px; border-left-color: currentColor; border-right-color: currentColor;
  border-top-color: currentColor; }
.token-inspector .cut.none, .token-inspector .key .cut:not(.up, .down) { border-bottom-color: currentColor; }
.token-inspector .chosen { box-shadow: 0 0 0 2px currentColor; }
.token-inspector .detail { border: 1px solid rgba(128, 128, 128, 0.6); border-radius: 0.3rem; padding: 0.3rem 0.6rem; margin: 0.4rem 0; }
.token-inspector table { border-collapse: collapse; margin: 0.3rem 0; width: auto; max-width: 100%; }
.token-inspector th, .token-inspector td { padding: 0.1rem 0.6rem 0.1rem 0; text-align: right; font-weight: normal; border: none;
  overflow-wrap: anywhere; color: inherit; background: none; }
.token-inspector th:first-child { text-align: left; }
.token-inspector td.same { opacity: 0.7; }
.token-inspector tbody tr:last-child > * { font-weight: bold; border-top: 1px solid currentColor; }
`;

const SHADES = { up: "0, 114, 178", down: "213, 94, 0" };
const FULL = 3; // a weight of so many mean sizes has the full colour
const COMMON = [["sampler", "when it was sampled"], ["old", "by the trainer, before the first update"],
  ["now", "now, before the second"], ["ref", "at the start of the run"]];
const FACTORS = [["ratio", "ratio", false], ["share", "share", false], ["advantage", "advantage", true], ["gate", "gate", false],
  ["correct", "correction", false], ["trust", "trust", false], ["pull", "KL pull", true], ["weight", "weight", true]];

function render({ model, el }) {
  const { number, factors, visible, spoken, relative } = maths;
  const runs = model.get("runs") ?? [], rows = model.get("rows") ?? [], kinds = model.get("kinds") ?? [];
  const root = figure(model, "token-inspector", STYLE);
  el.append(root);
  const said = element("p", { className: "said", role: "status" });
  if (runs.length === 0) {
    said.textContent = "Not recorded yet.";
    root.append(said);
    return;
  }
  const write = writer(model);
  // What is chosen, with what there is in place of what there is not.
  const now = () => {
    const run = runs.find((one) => one.name === model.get("run")) ?? runs[0];
    const step = run.steps.find((one) => one.step === model.get("step")) ?? run.steps.at(-1);
    const group = step.groups[model.get("prompt") ?? 0] ?? step.groups[0];
    const first = group.rows[model.get("first")] ? model.get("first") : rows[0].name;
    const second = group.rows[model.get("second")] && model.get("second") !== first ? model.get("second") : "";
    const i = Math.min(Math.max(model.get("completion") ?? 0, 0), group.tokens.length - 1);
    const t = Math.min(Math.max(model.get("token") ?? 0, 0), group.tokens[i].length - 1);
    return { run, step, group, first, second, i, t };
  };
  const menu = (name, label, value = (text) => text) => {
    const select = element("select", { className: name });
    select.addEventListener("change", () => write({ [name]: value(select.value), ...(name === "second" || name === "first" ? {} : { completion: 0, token: 0 }) }));
    return [element("label", {}, label, select), select];
  };
  const fill = (select, options, value) => {
    const same = select.options.length === options.length &&
      options.every(([name, text], i) => select.options[i].value === `${name}` && select.options[i].textContent === text);
    if (!same) select.replaceChildren(...options.map(([name, text]) => element("option", { value: `${name}`, textContent: text })));
    select.value = `${value}`;
  };
  const [runLabel, runMenu] = menu("run", "run");
  const [stepLabel, stepMenu] = menu("step", "step", Number);
  const [promptLabel, promptMenu] = menu("prompt", "prompt", Number);
  const [firstLabel, firstMenu] = menu("first", "row");
  const [secondLabel, secondMenu] = menu("second", "beside it");
  const asked = element("div", { className: "asked" }), key = element("div", { className: "key" });
  const list = element("div", { className: "completions" });
  const sample = (kind, text) => {
    const made = element("span", { className: kind, textContent: "x" }), [colour] = kind.split(" ");
    if (SHADES[colour]) made.style.backgroundColor = `rgba(${SHADES[colour]}, 0.45)`;
    made.setAttribute("aria-hidden", "true");
    return element("div", {}, made, ` ${text}`);
  };
  key.append(sample("up", "pushed up"), sample("down", "pushed down"), sample("cut", "has an advantage, and no gradient from it"),
    sample("up cut", "the same, and the KL penalty alone acts, up or down"));
  const shortcuts = element("div", { className: "examples" });
  shortcuts.setAttribute("role", "group");
  shortcuts.setAttribute("aria-label", "Examples");
  const examples = model.get("examples") ?? [];
  if (examples.length > 0) shortcuts.append("Show");
  for (const { title, set } of examples) {
    const button = element("button", { type: "button", textContent: title });
    button.addEventListener("click", () => write(set));
    shortcuts.append(button);
  }
  root.append(shortcuts, element("div", { className: "controls" }, runLabel, stepLabel, promptLabel, firstLabel, secondLabel), asked, key, said, list);

  let lines = []; // of the figure: { i, buttons }
  let panel = null;

  const drawn = (f, text, row, t) => {
    const kind = f.relative > 0.005 ? "up" : f.relative < -0.005 ? "down" : "none";
    const made = element("button", { type: "button", className: `token ${kind}${maths.cut(f) ? " cut" : ""}`, textContent: visible(text) });
    if (SHADES[kind]) {
      const depth = 0.1 + 0.45 * Math.min(1, Math.abs(f.relative) / FULL);
      made.style.backgroundColor = `rgba(${SHADES[kind]}, ${depth.toFixed(3)})`;
    }
    made.setAttribute("aria-label", `token ${t + 1}, ${spoken(text)}, ${row} ${relative(f.relative)}, ${maths.reason(f)}`);
    made.tabIndex = -1;
    return made;
  };

  const draw = () => {
    const { run, step, group, first, second } = now();
    fill(runMenu, runs.map(({ name, title }) => [name, title]), run.name);
    fill(stepMenu, run.steps.map((one) => [one.step, `${one.step}`]), step.step);
    fill(promptMenu, step.groups.map((one, i) => [i, `${i + 1} of ${step.groups.length}`]), step.groups.indexOf(group));
    fill(firstMenu, rows.map(({ name }) => [name, name]), first);
    fill(secondMenu, [["", "none"], ...rows.map(({ name }) => [name, name]).filter(([name]) => name !== first)], second);
    asked.replaceChildren(element("p", {}, "Prompt: ", element("code", { textContent: group.prompt })),
      element("p", { textContent: `Right answer: ${group.answer}` }), element("p", { textContent: run.note }));
    said.textContent = [first, second].filter(Boolean).map((row) => maths.words(step, row)).join(" ");
    lines = [];
    list.replaceChildren(...group.tokens.map((tokens, i) => {
      const cut = group.truncated[i] ? ", cut at the budget" : "";
      const box = element("div", { className: "completion" }, element("div", { className: "head", textContent:
        `Completion ${i + 1}: reward ${number(group.rewards[i])}, ${tokens.length} tokens${cut}` }));
      for (const row of [first, second].filter(Boolean)) {
        const buttons = tokens.map((text, t) => drawn(factors(kinds, step, group, row, i, t), text, row, t));
        const sum = relative(maths.total(kinds, step, group, row, i));
        const name = element("span", { className: "name", textContent: `${row} ${sum}` });
        name.title = "sum over the completion, in mean sizes of the row's weights";
        const line = element("div", { className: "line" }, name, element("div", { className: "tokens" }, ...buttons));
        line.setAttribute("role", "group");
        line.setAttribute("aria-label", `completion ${i + 1}, ${row}, sum ${sum}`);
        const at = lines.push({ i, buttons }) - 1;
        buttons.forEach((button, t) => {
          button.addEventListener("click", () => choose(at, t));
          button.addEventListener("keydown", (event) => moved(event, at, t));
        });
        box.append(line);
      }
      return box;
    }));
    panel = null;
    show();
  };

  let line = 0; // the line in which the chosen token was last pressed

  const choose = (at, t) => {
    line = at;
    write({ completion: lines[at].i, token: t });
    show();
    lines[at].buttons[t].focus();
  };

  const moved = (event, at, t) => {
    const last = lines[at].buttons.length - 1, to = {
      ArrowLeft: [at, t - 1], ArrowRight: [at, t + 1], ArrowUp: [at - 1, t], ArrowDown: [at + 1, t], Home: [at, 0], End: [at, last],
    }[event.key];
    if (!to || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const [where, which] = to;
    if (lines[where] && which >= 0) choose(where, Math.min(which, lines[where].buttons.length - 1));
  };

  const show = () => {
    const { step, group, first, second, i, t } = now();
    if (lines[line]?.i !== i) line = lines.findIndex((one) => one.i === i);
    lines.forEach((one, at) => one.buttons.forEach((button, place) => {
      const chosen = one.i === i && place === t;
      button.classList.toggle("chosen", chosen);
      button.setAttribute("aria-pressed", `${chosen}`);
      button.tabIndex = chosen && at === line ? 0 : -1;
    }));
    panel?.remove();
    const own = group.tokens[i].length;
    const shown = [first, second].filter(Boolean).map((row) => {
      const about = rows.find(({ name }) => name === row), f = factors(kinds, step, group, row, i, t);
      return { row, cells: about.cells, f, share: maths.share(f, about, step, own), shaped: group.shaped?.[row]?.[i] };
    });
    panel = element("div", { className: "detail" });
    panel.setAttribute("role", "group");
    panel.setAttribute("aria-label", "factors of the chosen token");
    const text = group.tokens[i][t];
    panel.append(element("p", {}, "Token ", `${t + 1} of ${group.tokens[i].length}, `, element("code", { textContent: visible(text) }),
      text === "" ? " (the end)" : "", `, in a completion with reward ${number(group.rewards[i])}.`));
    const table = element("table"), head = element("tr", {}, element("th", { textContent: "factor", scope: "col" }));
    head.append(...shown.map(({ row }) => element("th", { textContent: row, scope: "col" })));
    table.append(element("thead", {}, head));
    const body = element("tbody");
    if (shown.some(({ shaped }) => shaped !== undefined)) {
      body.append(element("tr", {}, element("th", { textContent: "reward after shaping", scope: "row" }),
        ...shown.map(({ shaped }) => element("td", { textContent: number(shaped ?? group.rewards[i]) }))));
    }
    for (const [name, label, signed] of FACTORS) {
      if (["correct", "trust"].includes(name) && !shown.some(({ cells }) => cells[name])) continue;
      body.append(element("tr", {}, element("th", { textContent: label, scope: "row" }), ...shown.map(({ f, share }) => {
        const made = element("td", { textContent: name === "share" ? share : number(f[name], signed) });
        if (name === "gate" && f.gate === f.ratio) made.className = "same"; // nothing but the ratio
        return made;
      })));
    }
    body.append(element("tr", {}, element("th", { textContent: "in mean sizes", scope: "row" }),
      ...shown.map(({ f }) => element("td", { textContent: relative(f.relative) }))));
    table.append(body);
    panel.append(table);
    for (const { row, cells, f, share } of shown) {
      panel.append(element("p", { textContent: `${row}: ${maths.reason(f)}. ${maths.formula(f, cells, share)}` }));
    }
    const chance = COMMON.map(([name, when]) => `${number(Math.exp(group[name][i][t]))} ${when}`);
    panel.append(element("p", { textContent: `Probability: ${chance.join(", ")}.` }));
    list.children[i].append(panel);
  };

  for (const name of ["run", "step", "prompt", "first", "second"]) model.on(`change:${name}`, draw);
  for (const name of ["completion", "token"]) model.on(`change:${name}`, show);
  draw();
}

export default { render, maths };
