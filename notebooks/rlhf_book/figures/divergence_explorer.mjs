// The divergence explorer: a teacher with two modes over twelve outcomes, and a student that is a bell with one knob, its
// centre; the loss of one divergence or another over that knob, and the push on each outcome's logit.
//
// One file for notebooks (anywidget) and for pages of the book, with nothing but the browser beneath it. It holds no
// formula: every number comes tabulated from Python, rlhf_book/figures/divergences.py, which the tests hold to autograd.

import { element, figure, picture, writer } from "./kit.mjs";

const maths = {
  names: {
    "forward": "forward KL(teacher, student)", "jsd 0.1": "JSD, \u03b2 = 0.1", "jsd 0.5": "JSD, \u03b2 = 0.5", "jsd 0.9": "JSD, \u03b2 = 0.9",
    "reverse": "reverse KL(student, teacher)", "top 3, cut": "reverse, top 3 alone (a bug)", "top 3 and rest": "reverse, top 3 and the rest",
  },

  say: (x, digits = 2) => {
    const shown = Math.abs(x).toFixed(digits);
    return (x < 0 && Number(shown) !== 0 ? "\u2212" : "") + shown;
  },

  // What is shown for a divergence and the number of a centre.
  at: (table, divergence, centre) => {
    const of = table.divergences[divergence];
    return { student: table.student[centre], loss: of.loss[centre], push: of.gradient[centre].map((x) => -x), best: of.best };
  },

  words: (table, divergence, centre) => {
    const { loss, push, best } = maths.at(table, divergence, centre), { say } = maths, where = table.centres[centre];
    const most = push.indexOf(Math.max(...push)), least = push.indexOf(Math.min(...push));
    const first = `Centre ${say(where, 1)}: the loss is ${say(loss)}. `;
    const second = centre === best ? "No centre has a smaller one. "
      : `It is smallest at ${say(table.centres[best], 1)}, ${say(table.divergences[divergence].loss[best])}. `;
    return first + second + `A free logit would be pushed up most at outcome ${most} (${say(push[most], 3)}), and down most at ${least} (${say(push[least], 3)}).`;
  },
};

const STYLE = `
.divergence-explorer .controls { display: flex; flex-wrap: wrap; gap: 0.3rem 0.8rem; align-items: center; margin-bottom: 0.5rem; }
.divergence-explorer label { display: inline-flex; flex-wrap: wrap; gap: 0.1rem 0.4rem; align-items: center; max-width: 100%; }
.divergence-explorer .slide { display: grid; grid-template-columns: 4.5em 1fr 2.4em; gap: 0.4rem; margin-bottom: 0.4rem; }
.divergence-explorer output, .divergence-explorer .number { font-variant-numeric: tabular-nums; white-space: nowrap; text-align: end; }
.divergence-explorer :is(th, td) { padding: 0 0.25rem; border: 0; background: none; font-weight: normal; text-align: start; }
.divergence-explorer thead th { font-size: 0.85em; font-weight: 600; vertical-align: bottom; }
.divergence-explorer .tiny { width: 4.8rem; } .divergence-explorer .push { width: 4.6rem; text-align: end; }
.divergence-explorer svg { display: block; width: 100%; height: 1.1rem; }
.divergence-explorer svg.curve { height: 5rem; }
.divergence-explorer .teacher { fill: #d9671e; } .divergence-explorer .student { fill: #3b8fcf; }
.divergence-explorer polyline { fill: none; stroke: currentColor; stroke-width: 1.5; } .divergence-explorer .here { stroke: #3b8fcf; stroke-width: 2; }
.divergence-explorer .said { margin: 0.6rem 0 0; min-height: 4.4em; }
@media (max-width: 560px) { .divergence-explorer { font-size: 0.78rem; } .divergence-explorer .said { min-height: 7em; } }
`;

function drawing(attributes, label, ...shapes) {
  const given = { preserveAspectRatio: "none", role: "img", "aria-label": label, ...attributes };
  return picture("svg", given, ...shapes.map(([tag, values]) => picture(tag, values)));
}

function render({ model, el }) {
  const table = model.get("table");
  const write = writer(model);
  const state = () => [model.get("divergence") ?? "forward", model.get("centre") ?? 10];

  const root = figure(model, "divergence-explorer", STYLE);
  const menu = element("select", { className: "divergence" });
  for (const [value, text] of Object.entries(maths.names)) menu.append(element("option", { value, textContent: text }));
  menu.addEventListener("change", () => write({ divergence: menu.value }));
  const best = element("button", { type: "button", textContent: "go to its smallest value" });
  best.addEventListener("click", () => write({ centre: table.divergences[state()[0]].best }));
  const slider = element("input", { type: "range", min: 0, max: table.centres.length - 1, step: 1, className: "centre-slider" });
  slider.addEventListener("input", () => write({ centre: Number(slider.value) }));
  const output = element("output");

  const curve = element("div"), head = element("tr"), body = element("tbody");
  for (const [text, className] of [["outcome", "tiny"], ["teacher (above) and student", ""], ["push on its logit", "push"]]) {
    head.append(element("th", { textContent: text, scope: "col", className }));
  }
  const lines = table.teacher.map((_, i) => {
    const cells = { bars: element("td"), push: element("td", { className: "push number" }) };
    body.append(element("tr", {}, element("th", { textContent: i, scope: "row" }), cells.bars, cells.push));
    return cells;
  });
  const said = element("p", { className: "said", role: "status" });
  root.append(
    element("div", { className: "controls" }, element("label", {}, "divergence:", menu), best),
    element("label", { className: "slide" }, "centre", slider, output), curve,
    element("table", {}, element("thead", {}, head), body), said);

  const draw = () => {
    const [divergence, centre] = state(), found = maths.at(table, divergence, centre);
    const losses = table.divergences[divergence].loss, low = Math.min(...losses), high = Math.max(...losses);
    const place = (i) => [(100 * i) / (losses.length - 1), 48 - (44 * (losses[i] - low)) / (high - low)];
    const [x, y] = place(centre);
    curve.replaceChildren(drawing({ viewBox: "0 0 100 50", class: "curve" }, `the loss over the centre, from ${maths.say(low)} to ${maths.say(high)}`,
      ["polyline", { points: losses.map((_, i) => place(i).join(",")).join(" "), "vector-effect": "non-scaling-stroke" }],
      ["line", { x1: x, x2: x, y1: y - 4, y2: y + 4, class: "here", "vector-effect": "non-scaling-stroke" }]));
    menu.value = divergence;
    slider.value = centre;
    output.textContent = maths.say(table.centres[centre], 1);
    slider.setAttribute("aria-valuetext", output.textContent);
    lines.forEach(({ bars, push }, i) => {
      const [u, p] = [table.teacher[i], found.student[i]];
      bars.replaceChildren(drawing({ viewBox: "0 0 100 20" }, `outcome ${i}: teacher ${maths.say(u)}, student ${maths.say(p)}`,
        ["rect", { x: 0, y: 2, width: 250 * u, height: 8, class: "teacher" }], ["rect", { x: 0, y: 11, width: 250 * p, height: 8, class: "student" }]));
      push.textContent = maths.say(found.push[i], 3);
    });
    said.textContent = maths.words(table, divergence, centre);
  };
  for (const name of ["divergence", "centre"]) model.on(`change:${name}`, draw);
  draw();
  el.append(root);
}

export default { render, maths };
