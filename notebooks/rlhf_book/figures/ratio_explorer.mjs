// The ratio explorer: move the log-ratios of one response's tokens, and see which of them GRPO lets learn, whether GSPO
// keeps the response, and what became of the product of all ratios.
//
// One file for notebooks (anywidget) and for pages of the book, with nothing but the browser beneath it. What it
// computes is in `maths`, which the tests hold to the gradient of the library's loss.

import { buttons, element, figure, picture, reader, writer } from "./kit.mjs";

const LIMIT = 0.5, STEP = 0.01; // of a log-ratio, in nats
const REACH = 2; // the bars' scale: a weight of 2 fills half the cell

const maths = {
  // Bands by name: how far below 1 and above 1 a ratio may go.
  bands: {
    "0.2 / 0.2": [0.2, 0.2], "0.2 / 0.27": [0.2, 0.27], "0.03 / 0.04": [0.03, 0.04], "3e-4 / 4e-4": [3e-4, 4e-4],
  },

  // Three ways to make one number of a response's ratios. `still` tokens have not moved: log-ratio 0, ratio 1.
  averages: (logs, still) => {
    const n = logs.length + still, sum = logs.reduce((a, b) => a + b, 0);
    const arithmetic = (logs.reduce((a, b) => a + Math.exp(b), 0) + still) / n;
    return { n, product: Math.exp(sum), geometric: Math.exp(sum / n), arithmetic };
  },

  // Whether the minimum has picked the clipped product, so that nothing is left to learn.
  dropped: (ratio, sign, [low, high]) => (sign > 0 ? ratio > 1 + high : ratio < 1 - low),

  // What multiplies the score of each token, for an advantage of +1 or -1, times the number of tokens: 1 before the
  // first update. GRPO's differ from token to token; GSPO has one for all.
  weights: (logs, still, sign, tokenBand, sequenceBand) => {
    const { n, product, geometric, arithmetic } = maths.averages(logs, still);
    const through = (ratio, band) => (maths.dropped(ratio, sign, maths.bands[band]) ? 0 : sign * ratio);
    const grpo = logs.map((d) => through(Math.exp(d), tokenBand));
    return {
      n, product, geometric, arithmetic, grpo,
      gspo: through(geometric, sequenceBand),
      silent: grpo.filter((weight) => weight === 0).length,
      raw: through(product, tokenBand),
    };
  },

  examples: {
    "one drift": [Array(6).fill(0.02), 0],
    "signs that cancel": [[0.3, -0.3, 0.25, -0.25, 0.1, -0.1], 0],
    "one jump": [[0.3, 0, 0, 0, 0, 0], 0],
    "a small jump in 100": [[0.04, 0, 0, 0, 0, 0], 94],
    "noise": [[0.12, -0.2, 0.05, 0.31, -0.09, -0.15], 0],
  },

  snap: (value) => Number(Math.min(LIMIT, Math.max(-LIMIT, Math.round(value / STEP) * STEP)).toFixed(2)),
  say: (x, digits = 2) => x.toFixed(digits).replace(/^-(0\.0*)$/, "$1").replace("-", "\u2212"),
  ratio: (x) => (Math.abs(x - 1) < 0.01 ? maths.say(x, 5) : maths.say(x, 3)),

  // What happened, in words.
  words: (logs, still, sign, tokenBand, sequenceBand) => {
    const found = maths.weights(logs, still, sign, tokenBand, sequenceBand), { n, geometric, silent } = found;
    const whole = `GSPO: ratio ${maths.ratio(geometric)}, `;
    const outside = geometric > 1 + maths.bands[sequenceBand][1] || geometric < 1 - maths.bands[sequenceBand][0];
    const fate = found.gspo === 0 ? `outside the band: all ${n} tokens are dropped. `
      : outside ? `outside the band on the side where it has moved the wrong way: all ${n} tokens learn, with one weight. `
        : `inside the band: all ${n} tokens learn, with one weight. `;
    const tokens = silent === 0 ? `GRPO: no token is clipped, ${n} of ${n} learn. `
      : `GRPO: ${silent} of ${n} tokens ${silent === 1 ? "is" : "are"} clipped, the others learn, each with its own ratio. `;
    const band = maths.bands[tokenBand];
    const held = found.product > 1 + band[1] || found.product < 1 - band[0] ? "outside" : "inside";
    return tokens + whole + fate + `The product of all ratios, ${maths.ratio(found.product)}, is ${held} GRPO's band.`;
  },
};

const STYLE = `
.ratio-explorer label { display: inline-flex; flex-wrap: wrap; gap: 0.1rem 0.4rem; align-items: center; }
.ratio-explorer tbody th { text-align: end; }
.ratio-explorer .number { width: 1.6rem; } .ratio-explorer .log { width: 38%; }
.ratio-explorer .slide { display: flex; gap: 0.4rem; align-items: center; }
.ratio-explorer output { font-variant-numeric: tabular-nums; white-space: nowrap; min-width: 5ch; text-align: end; }
.ratio-explorer .bar { position: relative; }
.ratio-explorer .value { position: absolute; top: 0; line-height: 1.5rem; white-space: nowrap; font-variant-numeric: tabular-nums; font-size: 0.9em; }
.ratio-explorer .value.above { right: calc(50% + 0.3em); }
.ratio-explorer .value.below { left: min(50% + 0.3em, 100% - 3.6em); }
.ratio-explorer svg { display: block; width: 100%; height: 1.5rem; }
.ratio-explorer svg line { stroke: currentColor; stroke-opacity: 0.5; }
@media (max-width: 480px) { .ratio-explorer { font-size: 0.8rem; } }
`;

const STILL = [0, 14, 94, 994];

// One bar from zero, and its number; a token that learns nothing says so.
function bar(value, label) {
  const half = 50, length = (Math.min(Math.abs(value), REACH) / REACH) * half;
  const svg = picture("svg", { viewBox: "0 0 100 20", preserveAspectRatio: "none", role: "img" });
  const shown = value === 0 ? "clipped" : maths.say(value);
  svg.setAttribute("aria-label", `${label} ${shown}`);
  svg.append(
    picture("line", { x1: half, x2: half, y1: 0, y2: 20, "vector-effect": "non-scaling-stroke" }),
    picture("rect", { x: value < 0 ? half - length : half, y: 4, width: length, height: 12, class: value < 0 ? "down" : "up" }),
  );
  const number = element("span", { className: value < 0 ? "value below" : "value above", textContent: shown });
  number.setAttribute("aria-hidden", "true"); // the bar has said it
  return element("div", { className: "bar" }, svg, number);
}

function render({ model, el }) {
  const read = reader(model);
  const write = writer(model);
  const logs = () => read("log_ratios", maths.examples["noise"][0]);
  const state = () => [logs(), read("still", 0), read("sign", 1), read("token_band", "0.2 / 0.2"),
    read("sequence_band", "3e-4 / 4e-4")];

  const root = figure(model, "ratio-explorer", STYLE);
  const examples = buttons(maths.examples, write, ([values, still]) => ({ log_ratios: [...values], still }));
  const choice = (name, options, cast) => {
    const select = element("select", { className: name });
    for (const [value, text] of options) select.append(element("option", { value, textContent: text }));
    select.addEventListener("change", () => write({ [name]: cast(select.value) }));
    return select;
  };
  const names = Object.keys(maths.bands).map((name) => [name, name]);
  const selects = {
    sign: choice("sign", [[1, "good, A = +1"], [-1, "bad, A = \u22121"]], Number),
    still: choice("still", STILL.map((count) => [count, String(count)]), Number),
    token_band: choice("token_band", names, String),
    sequence_band: choice("sequence_band", names, String),
  };
  const head = element("tr", {}, element("th", { className: "number", textContent: "" }),
    element("th", { className: "log", textContent: "log-ratio of the token, nats" }));
  for (const title of ["weight in GRPO", "weight in GSPO"]) head.append(element("th", { textContent: title, scope: "col" }));
  const body = element("tbody");
  const said = element("p", { className: "said", role: "status" });
  root.append(
    element("div", { className: "controls" }, examples,
      element("label", {}, "response ", selects.sign),
      element("label", {}, "and tokens that did not move ", selects.still),
      element("label", {}, "GRPO's band ", selects.token_band),
      element("label", {}, "GSPO's band ", selects.sequence_band)),
    element("table", {}, element("thead", {}, head), body),
    said,
  );

  // Rows are kept: a slider that is being dragged must not be replaced under the hand.
  const rows = logs().map((_, i) => {
    const slider = element("input", { type: "range", min: -LIMIT, max: LIMIT, step: STEP, className: "log-ratio" });
    slider.setAttribute("aria-label", `log-ratio of token ${i + 1}`);
    const shown = element("output");
    slider.addEventListener("input", () => {
      const changed = [...logs()];
      changed[i] = maths.snap(Number(slider.value));
      write({ log_ratios: changed });
    });
    const cells = [element("td"), element("td")];
    body.append(element("tr", {}, element("th", { scope: "row", textContent: String(i + 1) }),
      element("td", {}, element("div", { className: "slide" }, slider, shown)), ...cells));
    return { slider, shown, cells };
  });

  const draw = () => {
    const now = state(), [values, still, sign, tokenBand, sequenceBand] = now;
    const found = maths.weights(...now);
    selects.sign.value = String(sign);
    selects.still.value = String(still);
    selects.token_band.value = tokenBand;
    selects.sequence_band.value = sequenceBand;
    rows.forEach(({ slider, shown, cells }, i) => {
      slider.value = values[i];
      shown.textContent = maths.say(values[i]);
      cells[0].replaceChildren(bar(found.grpo[i], "weight in GRPO"));
      cells[1].replaceChildren(bar(found.gspo, "weight in GSPO"));
    });
    said.textContent = maths.words(...now);
  };
  for (const name of ["log_ratios", "still", "sign", "token_band", "sequence_band"]) model.on(`change:${name}`, draw);
  draw();
  el.append(root);
}

export default { render, maths };
