// The trust region explorer: one state, three actions, a policy of two parameters; the region of all policies within a
// KL bound, the box of all ratios within a clip range, and where four kinds of step end.
//
// One file for notebooks (anywidget) and for pages of the book, with nothing but the browser beneath it. Rewards 3, 2
// and 1; the policy is the softmax of the logits (a, b, 0). Advantages are exact. The tests hold `maths` to a reference.

import { element, figure, picture, reader, writer } from "./kit.mjs";

const REWARDS = [3, 2, 1], REACH = 3; // both parameters lie between -REACH and REACH
const KINDS = ["plain", "natural", "clip", "penalty"];
const DELTAS = [0.001, 0.01, 0.05], RANGES = [0.1, 0.2, 0.3], PRICES = [1, 3, 10, 30];
const RATE = 0.05, UPDATES = 2000; // of the steps on the clipped objective

const dot = (x, y) => x.reduce((sum, value, k) => sum + value * y[k], 0);

const maths = {
  policy: (a, b) => {
    const top = Math.max(a, b, 0), e = [a, b, 0].map((x) => Math.exp(x - top));
    return e.map((x) => x / (e[0] + e[1] + e[2]));
  },

  // KL(p || q).
  kl: (p, q) => p.reduce((sum, x, k) => sum + x * Math.log(x / q[k]), 0),

  // Along a direction of the two parameters until the KL is delta.
  along: (a, b, [u, v], delta) => {
    const p = maths.policy(a, b), at = (t) => maths.policy(a + t * u, b + t * v);
    let low = 0, high = 1;
    while (maths.kl(p, at(high)) < delta) high *= 2;
    for (let n = 0; n < 60; n += 1) {
      const middle = (low + high) / 2;
      if (maths.kl(p, at(middle)) < delta) low = middle; else high = middle;
    }
    return at(low);
  },

  // Small gradient steps on the clipped objective until it has no gradient, or as many as UPDATES.
  clipped: (a, b, A, eps) => {
    const p = maths.policy(a, b);
    let [x, y] = [a, b], q = p;
    for (let n = 0; n < UPDATES; n += 1) {
      q = maths.policy(x, y);
      const push = q.map((chance, k) => {
        const r = chance / p[k], silent = (A[k] > 0 && r > 1 + eps) || (A[k] < 0 && r < 1 - eps);
        return silent ? 0 : chance * A[k];
      });
      const all = push[0] + push[1] + push[2], step = [0, 1].map((k) => push[k] - q[k] * all);
      if (Math.hypot(...step) < 1e-9) break;
      [x, y] = [x + RATE * step[0], y + RATE * step[1]];
    }
    return q;
  },

  // The policy that maximises expected advantage minus beta KL(p || policy): beta p / (lambda - A).
  penalised: (p, A, beta) => {
    let low = Math.max(...A), high = low + beta + 1;
    const sum = (lambda) => p.reduce((total, x, k) => total + (beta * x) / (lambda - A[k]), 0);
    for (let n = 0; n < 100; n += 1) {
      const middle = (low + high) / 2;
      if (sum(middle) > 1) low = middle; else high = middle;
    }
    return p.map((x, k) => (beta * x) / (high - A[k]));
  },

  // The old policy, its advantages, and each step: where it ends, its ratios, its KL, its gain, inside the clip box or not.
  measure: (a, b, delta, eps, beta) => {
    const p = maths.policy(a, b), J = dot(p, REWARDS), A = REWARDS.map((r) => r - J);
    const ends = {
      plain: maths.along(a, b, [p[0] * A[0], p[1] * A[1]], delta),
      natural: maths.along(a, b, [A[0] - A[2], A[1] - A[2]], delta),
      clip: maths.clipped(a, b, A, eps),
      penalty: maths.penalised(p, A, beta),
    };
    const steps = Object.fromEntries(KINDS.map((kind) => {
      const q = ends[kind], ratios = q.map((x, k) => x / p[k]);
      return [kind, { q, ratios, kl: maths.kl(p, q), gain: dot(q, A), inside: ratios.every((r) => Math.abs(r - 1) <= eps) }];
    }));
    return { p, J, A, steps };
  },

  // The edge of the KL region and of the clip box, as points (probability of action 1, of action 2) around the old policy.
  edges: (p, delta, eps, count = 240) => {
    const kl = [], box = [];
    for (let n = 0; n < count; n += 1) {
      const turn = (2 * Math.PI * n) / count, u = [p[0] * Math.cos(turn), p[1] * Math.sin(turn)];
      const way = [...u, -u[0] - u[1]], at = (t) => p.map((x, k) => x + t * way[k]);
      const end = Math.min(...way.map((w, k) => (w < 0 ? -p[k] / w : Infinity)));
      let low = 0, high = end * (1 - 1e-12);
      for (let i = 0; i < 60; i += 1) {
        const middle = (low + high) / 2;
        if (maths.kl(p, at(middle)) < delta) low = middle; else high = middle;
      }
      kl.push(at(low).slice(0, 2));
      box.push(at(Math.min(...way.map((w, k) => (w === 0 ? Infinity : (eps * p[k]) / Math.abs(w))))).slice(0, 2));
    }
    return { kl, box };
  },

  words: (a, b, delta, eps, beta, kinds = KINDS) => {
    const { p, steps } = maths.measure(a, b, delta, eps, beta), { plain, natural, clip, penalty } = steps;
    const rarer = plain.ratios[0] < 1 ? `, and makes the best action rarer (ratio ${plain.ratios[0].toFixed(2)})` : "";
    const box = clip.inside ? "inside its box" : "outside its box";
    const two = `The best action has probability ${p[0].toFixed(3)}. At KL ${delta} the natural gradient gains ` +
      `${natural.gain.toFixed(3)}; the plain one gains ${plain.gain.toFixed(3)}${rarer}.`;
    return kinds.length === 2 ? two : `${two} Steps on the clipped objective end ${box}, at KL ${clip.kl.toFixed(4)}. ` +
      `The penalty with \u03b2 = ${beta} ends at KL ${penalty.kl.toFixed(4)}.`;
  },
};

const STYLE = `
.trust-region-explorer input[type=range] { min-width: 0; width: 8rem; margin: 0; accent-color: #3b8fcf; }
.trust-region-explorer output { font-variant-numeric: tabular-nums; white-space: nowrap; min-width: 2.6em; }
.trust-region-explorer svg { display: block; width: 100%; max-width: 28rem; }
.trust-region-explorer .frame { fill: none; stroke: currentColor; stroke-opacity: 0.5; }
.trust-region-explorer .kl { fill: none; stroke: #3b8fcf; stroke-width: 2; }
.trust-region-explorer .box { fill: none; stroke: #d9671e; stroke-width: 2; stroke-dasharray: 6 3; }
.trust-region-explorer text { fill: currentColor; font-size: 12px; }
.trust-region-explorer .mark { color: inherit; background: none; }
.trust-region-explorer text.mark { font-weight: 700; font-size: 14px; text-anchor: middle; }
.trust-region-explorer table { border-collapse: collapse; margin: 0.6rem 0 0; font-size: 0.9em; font-variant-numeric: tabular-nums; }
.trust-region-explorer :is(th, td) { padding: 0.15rem 0.5rem 0.15rem 0; text-align: right; font-weight: inherit; border: 0; background: transparent; }
.trust-region-explorer :is(th, td):first-child { text-align: left; }
`;
const NAMES = { plain: "plain gradient", natural: "natural gradient", clip: "clip", penalty: "KL penalty" };
const LETTERS = { plain: "G", natural: "N", clip: "C", penalty: "P" };
const WIDTH = 420, HEIGHT = 340, LEFT = 48, BOTTOM = 40; // of the picture

const shown = (x) => x.toFixed(1).replace(/^-(0\.0)$/, "$1").replace("-", "\u2212");
const signed = (x) => (x < 0 ? "\u2212" : "+") + Math.abs(x).toFixed(3);

function render({ model, el }) {
  const read = reader(model);
  const write = writer(model);
  const state = () => [read("a", -2), read("b", 0.5), read("delta", 0.01), read("eps", 0.2), read("beta", 3)];
  const kinds = KINDS.slice(0, read("steps", 4)), all = kinds.length === KINDS.length; // without clip and penalty: no box, no menu

  const root = figure(model, "trust-region-explorer", STYLE);

  const slider = (name, text) => {
    const input = element("input", { type: "range", min: -REACH, max: REACH, step: 0.1, className: name });
    const out = element("output");
    input.addEventListener("input", () => write({ [name]: Number(input.value) }));
    return { label: element("label", {}, text, input, out), show: (value) => { input.value = value; out.textContent = shown(value); } };
  };
  const menu = (name, text, choices) => {
    const select = element("select", { className: name });
    for (const choice of choices) select.append(element("option", { value: choice, textContent: choice }));
    select.addEventListener("change", () => write({ [name]: Number(select.value) }));
    return { label: element("label", {}, text, select), show: (value) => { select.value = value; } };
  };
  const controls = {
    a: slider("a", "\u03b8\u2081 "), b: slider("b", "\u03b8\u2082 "), delta: menu("delta", "KL bound \u03b4 ", DELTAS),
    ...(all ? { eps: menu("eps", "clip range \u03b5 ", RANGES), beta: menu("beta", "penalty \u03b2 ", PRICES) } : {}),
  };

  const map = picture("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
  const body = element("tbody"), table = element("table", {},
    element("thead", {}, element("tr", {}, ...["step", "ratios", "KL", "gain"].map((name) => element("th", { textContent: name, scope: "col" })))), body);
  const said = element("p", { className: "said", role: "status" });
  root.append(
    element("div", { className: "controls" }, ...Object.values(controls).map(({ label }) => label)),
    map,
    element("p", { className: "key", textContent: "Star: the old policy. Blue line: all policies at the KL bound. " +
      "G, N: plain and natural gradient, followed to the KL bound. " +
      (all ? "Dashed: the clip box. C: small steps on the clipped objective. P: the best policy under the KL penalty. " : "") +
      "The axes follow what is shown." }),
    table,
    said,
  );

  const draw = () => {
    const [a, b, delta, eps, beta] = state();
    for (const [name, value] of Object.entries({ a, b, delta, eps, beta })) controls[name]?.show(value);
    const { p, steps } = maths.measure(a, b, delta, eps, beta), { kl, box } = maths.edges(p, delta, eps);
    const points = [...kl, ...(all ? box : []), ...kinds.map((kind) => steps[kind].q)];
    const [across, upwards] = [0, 1].map((k) => {
      const values = points.map((point) => point[k]), low = Math.min(...values), high = Math.max(...values), spare = 0.08 * (high - low);
      const [from, to] = k === 0 ? [LEFT, WIDTH - 8] : [HEIGHT - BOTTOM, 8];
      const place = (x) => from + ((x - low + spare) / (high - low + 2 * spare)) * (to - from);
      return Object.assign(place, { ticks: [0.1, 0.5, 0.9].map((share) => low + share * (high - low)) });
    });
    const line = (points, kind) => picture("polygon", { class: kind, points: points.map(([x, y]) => `${across(x).toFixed(1)},${upwards(y).toFixed(1)}`).join(" ") });
    const digits = (place) => (place.ticks[2] - place.ticks[0] < 0.02 ? 4 : 3);
    map.replaceChildren(
      picture("rect", { class: "frame", x: LEFT, y: 8, width: WIDTH - 8 - LEFT, height: HEIGHT - BOTTOM - 8 }),
      ...across.ticks.map((x) => picture("text", { x: across(x), y: HEIGHT - BOTTOM + 15, "text-anchor": "middle" }, x.toFixed(digits(across)))),
      ...upwards.ticks.map((y) => picture("text", { x: LEFT - 4, y: upwards(y) + 4, "text-anchor": "end" }, y.toFixed(digits(upwards)))),
      picture("text", { x: (LEFT + WIDTH) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, "probability of action 1 (reward 3)"),
      picture("text", { x: LEFT + 6, y: 22 }, "\u2191 of action 2 (reward 2)"),
      line(kl, "kl"), ...(all ? [line(box, "box")] : []),
      picture("text", { class: "mark", x: across(p[0]), y: upwards(p[1]) + 5 }, "\u2605"),
      ...kinds.map((kind) => picture("text", { class: `mark ${kind}`, x: across(steps[kind].q[0]), y: upwards(steps[kind].q[1]) + 5 }, LETTERS[kind])),
    );
    map.setAttribute("aria-label", `map of the policies near the old one, with probabilities ${p.map((x) => x.toFixed(3)).join(", ")}; ` +
      kinds.map((kind) => `${NAMES[kind]} ends at ${steps[kind].q.map((x) => x.toFixed(3)).join(", ")}`).join("; "));
    body.replaceChildren(...kinds.map((kind) => {
      const { ratios, kl: far, gain } = steps[kind];
      const cells = [`${LETTERS[kind]} ${NAMES[kind]}`, ratios.map((r) => r.toFixed(2)).join("  "), far.toFixed(4), signed(gain)];
      return element("tr", { className: kind }, ...cells.map((text) => element("td", { textContent: text })));
    }));
    said.textContent = maths.words(a, b, delta, eps, beta, kinds);
  };
  for (const name of Object.keys(controls)) model.on(`change:${name}`, draw);
  draw();
  el.append(root);
}

export default { render, maths };
