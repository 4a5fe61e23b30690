// The KL explorer: a policy and a reference over three outcomes, and for each estimator of their KL divergence its mean,
// its spread and its expected gradient, beside the exact divergences and theirs.
//
// One file for notebooks (anywidget) and for pages of the book, with nothing but the browser beneath it. What it
// computes is in `maths`, which the tests hold to the library's estimators and to autograd.

import { buttons, element, figure, picture, reader, writer } from "./kit.mjs";

const maths = {
  range: { min: -3, max: 3, step: 0.1 }, // of the sliders, in logits
  places: { loss: "in the loss", reward: "in the reward", weighted: "in the loss, times the ratio" },
  estimators: ["k1", "k2", "k3"],

  examples: {
    "near": [[0.3, 0, -0.3], [0, 0, 0]],
    "far": [[2, 0, -1], [-1, 1, 1]],
    "surer than the reference": [[2.5, -0.5, -0.5], [0, 0, 0]],
    "an outcome is hardly drawn": [[1, 1, -3], [0, 0, 1.5]],
  },

  softmax: (logits) => {
    const top = Math.max(...logits), weights = logits.map((z) => Math.exp(z - top));
    const total = weights.reduce((a, b) => a + b, 0);
    return weights.map((w) => w / total);
  },

  value: { k1: (d) => d, k2: (d) => (d * d) / 2, k3: (d) => Math.expm1(-d) + d },
  slope: { k1: () => 1, k2: (d) => d, k3: (d) => -Math.expm1(-d) },

  // What multiplies the score of a sampled outcome: the estimator's slope in the loss, its value in the reward, and both
  // where the term in the loss carries the ratio.
  multiplier: (name, place, d) =>
    (place === "reward" ? 0 : maths.slope[name](d)) + (place === "loss" ? 0 : maths.value[name](d)),

  // The mean over samples of the policy of a number times the score, by each logit: [3].
  along: (p, numbers) => {
    const mean = p.reduce((sum, q, x) => sum + q * numbers[x], 0);
    return p.map((q, j) => q * (numbers[j] - mean));
  },

  // Exact divergences, and of each estimator mean, spread and expected gradient of one sample at this place.
  compute: (policy, reference, place) => {
    const p = maths.softmax(policy), q = maths.softmax(reference);
    const d = p.map((x, i) => Math.log(x) - Math.log(q[i]));
    const expect = (numbers) => p.reduce((sum, x, i) => sum + x * numbers[i], 0);
    const rows = maths.estimators.map((name) => {
      const values = d.map((x) => maths.value[name](x)), mean = expect(values);
      const spread = Math.sqrt(Math.max(0, expect(values.map((x) => (x - mean) ** 2))));
      return { name, mean, spread, gradient: maths.along(p, d.map((x) => maths.multiplier(name, place, x))) };
    });
    const forward = q.reduce((sum, x, i) => sum - x * d[i], 0);
    return {
      p, q, d, rows,
      reverse: { mean: expect(d), gradient: maths.along(p, d) },
      forward: { mean: forward, gradient: p.map((x, i) => x - q[i]) },
    };
  },

  norm: (x) => Math.sqrt(x.reduce((sum, v) => sum + v * v, 0)),
  // Cosine of two gradients; null where one of them is 0 to rounding.
  cosine: (a, b) => {
    const size = maths.norm(a) * maths.norm(b);
    return Math.min(maths.norm(a), maths.norm(b)) < 1e-12 ? null : a.reduce((sum, x, i) => sum + x * b[i], 0) / size;
  },
  same: (a, b) => Math.max(...a.map((x, i) => Math.abs(x - b[i]))) < 1e-12,
  say: (x, digits = 3) => {
    const shown = Math.abs(x).toFixed(digits);
    return (x < 0 && Number(shown) !== 0 ? "\u2212" : "") + shown;
  },

  // What an estimator does at this place, in words.
  verdict: (found, row) => {
    const { say, same, norm } = maths;
    if (norm(found.reverse.gradient) < 1e-12) return "no gradient: the policies are equal";
    if (norm(row.gradient) < 1e-12) return "pulls nowhere";
    if (same(row.gradient, found.reverse.gradient)) return "the gradient of KL(\u03c0\u2016ref)";
    if (same(row.gradient, found.forward.gradient)) return "the gradient of KL(ref\u2016\u03c0)";
    return `another gradient, cosine ${say(maths.cosine(row.gradient, found.reverse.gradient), 2)}`;
  },

  words: (policy, reference, place) => {
    const found = maths.compute(policy, reference, place), { say } = maths;
    if (maths.norm(found.reverse.gradient) < 1e-12) {
      return "Policy and reference are equal: every divergence, estimate and gradient is 0.";
    }
    const values = found.rows.map((row) => `${row.name} ${say(row.mean)}`).join(", ");
    const pulls = found.rows.map((row) => `${row.name}: ${maths.verdict(found, row)}`).join("; ");
    return `Values: exact ${say(found.reverse.mean)}; on average ${values}. ` +
      `As a step, ${maths.places[place]}: ${pulls}.`;
  },
};

const STYLE = `
.kl-explorer label { display: inline-flex; flex-wrap: wrap; gap: 0.1rem 0.4rem; align-items: center; }
.kl-explorer table { width: 100%; table-layout: fixed; border-collapse: collapse; margin: 0 0 0.6rem; font-size: inherit; color: inherit; }
.kl-explorer .narrow { width: 4.6rem; } .kl-explorer .name { width: 26%; }
.kl-explorer .slide { display: flex; gap: 0.4rem; align-items: center; }
.kl-explorer output { font-variant-numeric: tabular-nums; white-space: nowrap; min-width: 4.5ch; text-align: end; }
.kl-explorer .number { font-variant-numeric: tabular-nums; }
.kl-explorer svg { display: block; width: 100%; height: 2.6rem; }
.kl-explorer svg line { stroke: currentColor; stroke-opacity: 0.5; }
.kl-explorer .exact :is(th, td) { border-bottom: 1px solid; font-weight: 600; }
@media (max-width: 480px) { .kl-explorer { font-size: 0.78rem; } .kl-explorer .said { min-height: 9.8em; }
  .kl-explorer .narrow { width: 3.4rem; } }
`;

const OUTCOMES = ["A", "B", "C"];

// Three bars from zero: what a step against this gradient does to each logit, relative to the largest of all rows.
function bars(gradient, largest, label) {
  const svg = picture("svg", { viewBox: "0 0 90 40", preserveAspectRatio: "none", role: "img" });
  const steps = gradient.map((g) => -g);
  svg.setAttribute("aria-label", `${label}: ${steps.map((s, i) => `${OUTCOMES[i]} ${maths.say(s)}`).join(", ")}`);
  svg.append(picture("line", { x1: 0, x2: 90, y1: 20, y2: 20, "vector-effect": "non-scaling-stroke" }));
  steps.forEach((step, i) => {
    const height = largest === 0 ? 0 : (18 * Math.abs(step)) / largest;
    svg.append(picture("rect", {
      x: 30 * i + 6, y: step < 0 ? 20 : 20 - height, width: 18, height, class: step < 0 ? "down" : "up",
    }));
  });
  return svg;
}

function render({ model, el }) {
  const read = reader(model);
  const write = writer(model);
  const [startPolicy, startReference] = maths.examples.far;
  const state = () => [read("policy", startPolicy), read("reference", startReference), read("place", "loss")];

  const root = figure(model, "kl-explorer", STYLE);
  const examples = buttons(maths.examples, write, ([policy, reference]) => ({ policy: [...policy], reference: [...reference] }));
  const place = element("select", { className: "place" });
  for (const [value, text] of Object.entries(maths.places)) place.append(element("option", { value, textContent: text }));
  place.addEventListener("change", () => write({ place: place.value }));

  const head = (...titles) => {
    const row = element("tr");
    for (const [text, className] of titles) row.append(element("th", { textContent: text, scope: "col", className }));
    return element("thead", {}, row);
  };
  const settings = element("tbody"), shown = {};
  OUTCOMES.forEach((outcome, i) => {
    const row = element("tr", {}, element("th", { textContent: outcome, scope: "row" }));
    for (const name of ["policy", "reference"]) {
      const slider = element("input", { type: "range", ...maths.range, className: `${name}-slider` });
      slider.setAttribute("aria-label", `logit of ${outcome} under the ${name}`);
      slider.addEventListener("input", () => {
        const changed = [...read(name, name === "policy" ? startPolicy : startReference)];
        changed[i] = Number(slider.value);
        write({ [name]: changed });
      });
      const output = element("output");
      shown[`${name}${i}`] = { slider, output };
      row.append(element("td", {}, element("div", { className: "slide" }, slider, output)));
    }
    settings.append(row);
  });
  const results = element("tbody", { className: "results" });
  const said = element("p", { className: "said", role: "status" });
  root.append(
    element("div", { className: "controls" }, examples, element("label", {}, "the estimate stands ", place)),
    element("table", {}, head(["", "narrow"], ["policy", ""], ["reference", ""]), settings),
    element("table", {}, head(["", "name"], ["mean", "narrow"], ["spread of one sample", "narrow"],
      ["a step against it moves the logits of A, B, C", ""]), results),
    said,
  );

  const draw = () => {
    const now = state(), [policy, reference] = now, found = maths.compute(...now);
    place.value = now[2];
    OUTCOMES.forEach((outcome, i) => {
      for (const [name, logits, chances] of [["policy", policy, found.p], ["reference", reference, found.q]]) {
        const { slider, output } = shown[`${name}${i}`];
        slider.value = logits[i];
        output.textContent = maths.say(chances[i]);
        slider.setAttribute("aria-valuetext", `logit ${maths.say(logits[i], 1)}, probability ${maths.say(chances[i])}`);
      }
    });
    const lines = [
      ["exact KL(\u03c0\u2016ref)", found.reverse, true],
      ...found.rows.map((row) => [row.name, row, false]),
      ["exact KL(ref\u2016\u03c0)", found.forward, false],
    ];
    const largest = Math.max(...lines.flatMap(([, row]) => row.gradient.map(Math.abs)));
    results.replaceChildren(...lines.map(([name, row, exact]) => element("tr", { className: exact ? "exact" : "" },
      element("th", { textContent: name, scope: "row" }),
      element("td", { className: "number mean", textContent: maths.say(row.mean) }),
      element("td", { className: "number", textContent: row.spread === undefined ? "" : maths.say(row.spread) }),
      element("td", {}, bars(row.gradient, largest < 1e-12 ? 0 : largest, name)))));
    said.textContent = maths.words(...now);
  };
  for (const name of ["policy", "reference", "place"]) model.on(`change:${name}`, draw);
  draw();
  el.append(root);
}

export default { render, maths };
