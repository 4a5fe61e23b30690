// The clip explorer: the six cases of the clip as buttons, and one token that goes where a button sends it, or where it is
// dragged to. Beside the table the clipped objective, and the weight that it leaves on the token's score.
//
// One file for notebooks (anywidget) and for pages of the book, with nothing but the browser beneath it. What it
// computes is in `maths`, which the tests hold to the library's gate and to its gradient.

import { drag, element, figure, picture, reader, say, writer } from "./kit.mjs";

const WIDEST = 2.5; // the ratio runs from 0 to here
const REACH = 3; // both vertical axes run from -REACH to REACH; what leaves them is cut

const maths = {
  // The bounds, freed of rounding: 1 - 0.9 should be 0.1.
  band: (low, high) => [Number((1 - low).toFixed(6)), Number((1 + high).toFixed(6))],

  objective: (r, A, low, high) => {
    const [floor, ceiling] = maths.band(low, high);
    return Math.min(r * A, Math.min(Math.max(r, floor), ceiling) * A);
  },

  // Which of the three columns of the table: the edges belong to the band.
  where: (r, low, high) => {
    const [floor, ceiling] = maths.band(low, high);
    return r > ceiling ? "above" : r < floor ? "below" : "inside";
  },

  silent: (r, A, low, high) => {
    const where = maths.where(r, low, high);
    return A === 0 || (A > 0 && where === "above") || (A < 0 && where === "below");
  },

  // What multiplies grad log pi of the token when the objective is climbed.
  weight: (r, A, low, high) => (maths.silent(r, A, low, high) ? 0 : r * A),

  // The six cases: what multiplies grad log pi there, in words, and a ratio that lies there.
  places: ["below", "inside", "above"],
  cases: {
    1: { below: ["rA", "fell: pushed back up"], inside: ["rA", "pushed up"], above: ["0", "has risen enough"] },
    "-1": { below: ["0", "has fallen enough"], inside: ["rA", "pushed down"], above: ["rA", "rose: pushed back down"] },
  },
  visit: (where, low, high) => {
    const [floor, ceiling] = maths.band(low, high);
    const ratio = { below: floor / 2, inside: 1, above: (ceiling + WIDEST) / 2 - 0.15 }[where];
    return Number(Math.max(0.01, ratio).toFixed(2));
  },

  say,

  // In words: the cell, and why there is a gradient or none.
  words: (r, A, low, high) => {
    const where = maths.where(r, low, high), weight = maths.say(maths.weight(r, A, low, high));
    const [floor, ceiling] = maths.band(low, high).map((edge) => maths.say(edge));
    if (A === 0) return "The advantage is 0: there is nothing to gain or to lose, and no gradient at any ratio.";
    const token = A > 0 ? "A good token" : "A bad token";
    const moved = r > 1 ? `that is ${maths.say(r)} times as likely as when it was sampled`
      : r < 1 ? `that is only ${maths.say(r)} times as likely as when it was sampled` : "that has not moved";
    if (where === "inside") {
      const first = r === 1 ? " This is the first step after sampling: whatever the bounds, the weight is the advantage." : "";
      return `${token} ${moved}, inside the clip range. Both products are the same, and nothing is clipped: ` +
        `weight ${weight}.${first}`;
    }
    if (maths.silent(r, A, low, high)) {
      return A > 0 ? `${token} ${moved}, above ${ceiling}. The clipped product is the smaller one, and it is flat: no gradient. ` +
          "It has gained enough from these samples."
        : `${token} ${moved}, below ${floor}. Both products are negative, the clipped one is the smaller, and it is flat: ` +
          "no gradient. It has lost enough from these samples.";
    }
    return A > 0 ? `${token} ${moved}, below ${floor}: it has moved the wrong way. The unclipped product is the smaller one, so ` +
        `the gradient stays and pulls it back up: weight ${weight}.`
      : `${token} ${moved}, above ${ceiling}: it has moved the wrong way. The unclipped product is the smaller one, so the ` +
        `gradient stays and pushes it back down: weight ${weight}, and the further it went the larger.`;
  },
};

const STYLE = `
.clip-explorer .cases { border-collapse: separate; border-spacing: 0.25rem; margin-bottom: 0.5rem; }
.clip-explorer .cases :is(th, td) { padding: 0; text-align: center; } .clip-explorer .cases tbody th { width: 3.6rem; }
.clip-explorer .cases thead th:first-child { width: 3.6rem; }
.clip-explorer .cases button { width: 100%; min-height: 3.4rem; line-height: 1.25; padding: 0.15rem; }
.clip-explorer .cases b { display: block; } .clip-explorer .cases button.silent { border-style: dashed; }
.clip-explorer .cases button[aria-pressed=true] { outline: 3px solid #3b8fcf; outline-offset: -1px; font-weight: 400; }
.clip-explorer .cases tr.bad button[aria-pressed=true] { outline-color: #d9671e; }
.clip-explorer .sliders { display: grid; grid-template-columns: repeat(auto-fit, minmax(17rem, 1fr)); gap: 0.3rem 1.5rem;
  margin-bottom: 0.5rem; }
.clip-explorer label { display: grid; grid-template-columns: 7.2em 1fr 3.4em; gap: 0.4rem; align-items: center; }
.clip-explorer output { font-variant-numeric: tabular-nums; white-space: nowrap; text-align: end; }
.clip-explorer .plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(15rem, 1fr)); gap: 0.5rem 1rem; }
.clip-explorer svg { display: block; width: 100%; height: auto; overflow: hidden; }
.clip-explorer svg text { fill: currentColor; font-size: 13px; }
.clip-explorer .axis { stroke: currentColor; stroke-opacity: 0.3; }
.clip-explorer .band { fill: currentColor; fill-opacity: 0.1; }
.clip-explorer .free { fill: none; stroke: currentColor; stroke-width: 1.5; stroke-dasharray: 5 4; }
.clip-explorer .curve { fill: none; stroke-width: 3; }
.clip-explorer svg { cursor: ew-resize; touch-action: pan-y; } .clip-explorer .push { stroke: currentColor; stroke-width: 2.5; fill: none; }
.clip-explorer .here { stroke: currentColor; stroke-dasharray: 3 3; }
.clip-explorer .up { stroke: #3b8fcf; } .clip-explorer .down { stroke: #d9671e; }
.clip-explorer circle.up { fill: #3b8fcf; } .clip-explorer circle.down { fill: #d9671e; }
.clip-explorer .said { margin: 0.5rem 0 0; min-height: 5.6em; }
`;

const WIDTH = 320, HEIGHT = 250, LEFT = 28, BOTTOM = 38, TOP = 26;
const across = (r) => LEFT + (r / WIDEST) * (WIDTH - LEFT - 8);
const down = (y) => (TOP + HEIGHT - BOTTOM) / 2 - (Math.max(-REACH, Math.min(REACH, y)) / REACH) * ((HEIGHT - BOTTOM - TOP) / 2);

// A function of the ratio as points; where it leaves the axis it is cut, and a jump is drawn as a jump.
function points(f) {
  const made = [];
  for (let i = 0; i <= 1000; i++) made.push(`${across((i / 1000) * WIDEST).toFixed(1)},${down(f((i / 1000) * WIDEST)).toFixed(1)}`);
  return made.join(" ");
}

function render({ model, el }) {
  const read = reader(model);
  const write = writer(model);
  const state = () => [read("ratio", 1.5), read("advantage", 1), read("low", 0.2), read("high", 0.2)];

  const root = figure(model, "clip-explorer", STYLE);
  const heads = maths.places.map(() => element("th", { scope: "col" }));
  const body = element("tbody"), cases = [];
  for (const sign of [1, -1]) {
    const row = element("tr", { className: sign > 0 ? "good" : "bad" }, element("th", { scope: "row", textContent: sign > 0 ? "A > 0" : "A < 0" }));
    for (const where of maths.places) {
      const [weight, text] = maths.cases[sign][where];
      const button = element("button", { type: "button", className: weight === "0" ? "silent" : "live" },
        element("b", { textContent: weight }), text);
      button.addEventListener("click", () => {
        const [, , low, high] = state();
        write({ ratio: maths.visit(where, low, high), advantage: sign });
      });
      cases.push({ button, where, sign });
      row.append(element("td", {}, button));
    }
    body.append(row);
  }
  const table = element("table", { className: "cases" }, element("thead", {}, element("tr", {}, element("th"), ...heads)), body);
  const sliders = {};
  const holder = element("div", { className: "sliders" });
  for (const [name, text, min, max, step] of [
    ["ratio", "ratio", 0.01, WIDEST, 0.01], ["advantage", "advantage", -1.5, 1.5, 0.1],
    ["low", "lower bound", 0, 1, 0.01], ["high", "upper bound", 0, 1, 0.01],
  ]) {
    const input = element("input", { type: "range", min, max, step, className: name });
    const shown = element("output");
    input.addEventListener("input", () => write({ [name]: Number(input.value) }));
    sliders[name] = { input, shown };
    holder.append(element("label", {}, text, input, shown));
  }
  const plots = { objective: picture("svg", {}), weight: picture("svg", {}) };
  for (const svg of Object.values(plots)) {
    svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    svg.setAttribute("role", "img");
  }
  const said = element("p", { className: "said", role: "status" });
  root.append(table, element("div", { className: "plots" }, plots.objective, plots.weight), said, holder);
  for (const svg of Object.values(plots)) {
    drag(svg, svg, (place) => {
      const ratio = ((place.x - LEFT) / (WIDTH - LEFT - 8)) * WIDEST;
      write({ ratio: Number(Math.min(WIDEST, Math.max(0.01, ratio)).toFixed(2)) });
    });
  }

  const plot = (svg, title, f, value, free) => {
    const [r, A, low, high] = state(), kind = A < 0 ? "down" : "up", [floor, ceiling] = maths.band(low, high);
    svg.replaceChildren();
    svg.append(picture("rect", { class: "band", x: across(floor), width: across(Math.min(ceiling, WIDEST)) - across(floor), y: TOP,
      height: HEIGHT - BOTTOM - TOP }));
    for (const y of [-2, 0, 2]) {
      svg.append(picture("line", { class: "axis", x1: LEFT, x2: WIDTH - 8, y1: down(y), y2: down(y) }),
        picture("text", { x: LEFT - 5, y: down(y) + 4, "text-anchor": "end" }, String(y).replace("-", "\u2212")));
    }
    for (const x of [0, 1, 2]) svg.append(picture("text", { x: across(x), y: HEIGHT - BOTTOM + 16, "text-anchor": "middle" }, String(x)));
    svg.append(picture("text", { x: WIDTH - 8, y: HEIGHT - 4, "text-anchor": "end" }, "ratio"),
      picture("text", { x: LEFT, y: 15 }, title));
    if (free) svg.append(picture("polyline", { class: "free", points: points(free) }));
    svg.append(picture("polyline", { class: `curve ${kind}`, points: points(f) }),
      picture("line", { class: "here", x1: across(r), x2: across(r), y1: TOP, y2: HEIGHT - BOTTOM }),
      picture("circle", { class: kind, cx: across(r), cy: down(value), r: 6 }));
    if (free && !maths.silent(r, A, low, high)) { // which way an update moves the token, uphill on the objective
      const way = Math.sign(A), tip = [across(r) + 30 * way, down(value) - 30];
      svg.append(picture("path", { class: "push", d: `M ${across(r)} ${down(value)} L ${tip} m ${-9 * way} 1 L ${tip} l ${-1 * way} 9` }));
    }
    svg.setAttribute("aria-label", `${title}: ${maths.say(value)} at ratio ${maths.say(r)}`);
  };
  const draw = () => {
    const [r, A, low, high] = state();
    const shown = { ratio: maths.say(r), advantage: maths.say(A, 1), low: maths.say(maths.band(low, high)[0]),
      high: maths.say(maths.band(low, high)[1]) };
    for (const [name, { input, shown: output }] of Object.entries(sliders)) {
      // The lower bound's slider runs to the left: what it shows is the bound, what it holds is the epsilon.
      input.value = read(name, { ratio: 1.5, advantage: 1, low: 0.2, high: 0.2 }[name]);
      input.setAttribute("aria-valuetext", shown[name]);
      output.textContent = shown[name];
    }
    const [floor, ceiling] = maths.band(low, high).map((edge) => maths.say(edge)), now = maths.where(r, low, high);
    [`r < ${floor}`, "inside", `r > ${ceiling}`].forEach((text, i) => { heads[i].textContent = text; });
    for (const { button, where, sign } of cases) {
      button.setAttribute("aria-pressed", String(where === now && Math.sign(A) === sign));
      button.disabled = where === "below" && maths.band(low, high)[0] <= 0;
    }
    const value = maths.objective(r, A, low, high), weight = maths.weight(r, A, low, high);
    plot(plots.objective, "objective", (x) => maths.objective(x, A, low, high), value, (x) => x * A);
    plot(plots.weight, "weight on the gradient of log \u03c0", (x) => maths.weight(x, A, low, high), weight, null);
    root.dataset.objective = String(value);
    root.dataset.weight = String(weight);
    said.textContent = maths.words(r, A, low, high);
  };
  for (const name of ["ratio", "advantage", "low", "high"]) model.on(`change:${name}`, draw);
  draw();
  el.append(root);
}

export default { render, maths };
