// The batch calculator: a library's batch settings in, and out comes what a rollout holds, how many updates it pays for, and
// how many updates old the completions of each are.
//
// One file for notebooks (anywidget) and for pages of the book, with nothing but the browser beneath it. What it
// computes is in `maths`, which has to equal tests/viz/batches.py; that is held to what TRL and our own `export` do.

import { choice, element, figure, picture, reader, writer } from "./kit.mjs";

const MOST = 48; // updates that are drawn
const LARGEST = 1e6; // a setting

const maths = {
  titles: { trl: "TRL", verl: "verl", "prime-rl": "prime-rl" },
  libraries: {
    trl: { per_device_train_batch_size: 8, processes: 1, gradient_accumulation_steps: 4, num_generations: 8,
      num_iterations: 1, steps_per_generation: 16 },
    verl: { train_batch_size: 128, "rollout.n": 8, ppo_mini_batch_size: 32, ppo_epochs: 1,
      ppo_micro_batch_size_per_gpu: 16, gpus: 8 },
    "prime-rl": { batch_size: 256, rollouts_per_example: 8, max_async_level: 1 },
  },

  // Why a setting is none, or null. Of prime-rl's levels there may be 0: then sampler and trainer take turns.
  wrong: (name, value) => {
    const least = maths.least(name), got = Number.isNaN(value) ? "nothing" : value;
    return Number.isInteger(value) && value >= least && value <= LARGEST ? null
      : `${name}: expected a whole number from ${least} to ${LARGEST}, got ${got}`;
  },
  least: (name) => (name === "max_async_level" ? 0 : 1),
  // What somebody has typed, as a number; 1e3 is a thousand, and a blank is none.
  number: (text) => (text.trim() === "" ? NaN : Number(text)),

  even: (whole, part, what, name) => {
    if (whole % part) throw new RangeError(`${whole} ${what} are no multiple of ${name}, ${part}: nothing is cut evenly`);
  },
  lcm: (a, b) => {
    let [x, y] = [a, b];
    while (y) [x, y] = [y, x % y];
    return (a / x) * b;
  },
  // Of each update in a cycle: a rollout serves `span` micro-batches, and an update takes `micro` of them.
  ages: (span, micro) => Array.from({ length: maths.lcm(span, micro) / micro },
    (_, update) => update - Math.floor((Math.floor((update * micro) / span) * span) / micro)),

  // What the settings mean, or {problem}.
  compute: (library, numbers) => {
    const v = { ...maths.libraries[library], ...numbers };
    try {
      for (const [name, value] of Object.entries(v)) {
        if (maths.wrong(name, value)) throw new RangeError(maths.wrong(name, value));
      }
      if (library === "trl") {
        const piece = v.per_device_train_batch_size * v.processes, completions = piece * v.steps_per_generation;
        maths.even(completions, v.num_generations, "completions", "num_generations");
        const span = v.steps_per_generation * v.num_iterations, micro = v.gradient_accumulation_steps;
        const period = maths.lcm(span, micro);
        if (period / micro > 1e5) throw new RangeError("too many updates to count");
        return { prompts: completions / v.num_generations, completions, step: piece * micro, micro, rollouts: period / span,
          ages: maths.ages(span, micro) };
      }
      if (library === "verl") {
        const prompts = v.train_batch_size, mini = v.ppo_mini_batch_size, step = mini * v["rollout.n"];
        maths.even(prompts, mini, "prompts", "ppo_mini_batch_size");
        maths.even(step, v.gpus, "completions of an update", "gpus");
        const updates = (prompts / mini) * v.ppo_epochs;
        if (updates > 1e5) throw new RangeError("too many updates to count");
        return { prompts, completions: prompts * v["rollout.n"], step,
          micro: Math.ceil(step / v.gpus / v.ppo_micro_batch_size_per_gpu), rollouts: 1, ages: maths.ages(updates, 1) };
      }
      maths.even(v.batch_size, v.rollouts_per_example, "completions", "rollouts_per_example");
      return { prompts: v.batch_size / v.rollouts_per_example, completions: v.batch_size, step: v.batch_size, micro: 1, rollouts: 1,
        ages: [v.max_async_level] };
    } catch (problem) {
      if (problem instanceof RangeError) return { problem: problem.message };
      throw problem;
    }
  },

  // The ages that are drawn, a bar each, and what the drawing is called.
  drawn: (found) => {
    if (found.problem) return [[], `no updates: ${found.problem}`];
    const ages = found.ages.slice(0, MOST), cut = ages.length < found.ages.length ? `the first ${MOST} of ` : "";
    return [ages, `ages of ${cut}${maths.many(found.ages.length, "update")}: ${ages.join(", ")}`];
  },

  many: (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`,

  words: (library, numbers) => {
    const { many } = maths, found = maths.compute(library, numbers);
    if (found.problem) return `This does not work: ${found.problem}.`;
    const { prompts, completions, step, rollouts, ages } = found;
    const off = ages.filter((age) => age > 0).length, oldest = ages.reduce((a, b) => Math.max(a, b), 0);
    const pays = rollouts === 1 ? `A rollout pays for ${many(ages.length, "update")}`
      : `${rollouts} rollouts pay for ${many(ages.length, "update")}`;
    const which = off === 0 ? "Each update uses completions of its own weights: on-policy, and a clip has nothing to do."
      : off === ages.length ? `Every update is off-policy, by up to ${many(oldest, "update")}.`
        : `Of these, ${ages.length - off} ${ages.length - off === 1 ? "is" : "are"} on-policy and ${off} off-policy, the oldest ` +
          `completions by ${many(oldest, "update")}.`;
    const cut = library === "prime-rl" ? "" : ` An update is added up from ${found.micro} micro-batch${found.micro === 1 ? "" : "es"} on a device.`;
    return `A rollout holds ${many(prompts, "prompt")}, ${many(completions, "completion")} in all. ${pays} of ` +
      `${many(step, "completion")}${ages.length === 1 ? "" : " each"}. ${which}${cut}`;
  },
};

const STYLE = `
.batch-calculator .fields { display: grid; grid-template-columns: repeat(auto-fit, minmax(16rem, 1fr)); gap: 0.3rem 1rem; }
.batch-calculator .fields label { display: grid; grid-template-columns: 1fr 6rem; gap: 0.4rem; overflow-wrap: anywhere; }
.batch-calculator input { font: inherit; color: inherit; background: transparent; border: 1px solid currentColor; border-radius: 0.3rem;
  padding: 0.15rem 0.4rem; min-height: 1.75rem; width: 100%; min-width: 0; box-sizing: border-box; }
.batch-calculator svg { display: block; width: 100%; height: 5rem; margin-top: 0.6rem; }
.batch-calculator input[aria-invalid=true] { border-style: dashed; }
@media (max-width: 480px) { .batch-calculator { font-size: 0.8rem; } .batch-calculator .said { min-height: 8.4em; }
  .batch-calculator .fields label { grid-template-columns: 1fr 5rem; } }
`;

function render({ model, el }) {
  const read = reader(model), write = writer(model);
  const library = () => read("library", "trl");
  const numbers = () => ({ ...maths.libraries[library()], ...read("numbers", {}) });
  const root = figure(model, "batch-calculator", STYLE);
  const [group, press] = choice("library", maths.titles, (name) => write({ numbers: {}, library: name }));
  const fields = element("div", { className: "fields" });
  const svg = picture("svg", { viewBox: "0 0 600 80", preserveAspectRatio: "none", role: "img" });
  const key = element("p", { className: "key" });
  const said = element("p", { className: "said", role: "status" });
  root.append(element("div", { className: "controls" }, group), fields, svg, key, said);
  // What was typed and is no setting stays in its field alone: name -> the number, and the setting that still holds.
  let inputs = {}, shown = null, typed = {};

  const draw = () => {
    const now = library();
    press(now);
    if (shown !== now) { // other fields; else they stay, and so does the focus
      shown = now;
      [inputs, typed] = [{}, {}];
      fields.replaceChildren(...Object.keys(maths.libraries[now]).map((name) => {
        const input = element("input", { type: "number", min: maths.least(name), step: 1, className: `field-${name.replace(".", "-")}` });
        input.addEventListener("input", () => {
          const value = maths.number(input.value), bad = maths.wrong(name, value);
          if (bad) typed[name] = { value, held: numbers()[name] };
          else delete typed[name];
          if (bad || numbers()[name] === value) draw();
          else write({ numbers: { ...numbers(), [name]: value } });
        });
        inputs[name] = input;
        return element("label", {}, name, input);
      }));
    }
    const asked = { ...read("numbers", {}) };
    for (const [name, input] of Object.entries(inputs)) {
      const value = numbers()[name];
      if (typed[name] && typed[name].held !== value) delete typed[name]; // the setting was changed elsewhere
      if (typed[name]) asked[name] = typed[name].value;
      else if (input !== document.activeElement) input.value = value;
      input.setAttribute("aria-invalid", String(name in typed));
    }
    const found = maths.compute(now, asked), [ages, label] = maths.drawn(found), wide = 600 / Math.max(8, ages.length);
    const most = Math.max(1, ...ages);
    svg.replaceChildren(...ages.map((age, i) => {
      const tall = age === 0 ? 12 : 12 + (64 * age) / most;
      return picture("rect", { x: i * wide + 1, width: wide - 2, y: 80 - tall, height: tall, class: age === 0 ? "up" : "down" });
    }));
    svg.setAttribute("aria-label", label);
    said.textContent = maths.words(now, asked);
    const until = ages.length < (found.ages ?? []).length ? `of the first ${MOST}` : "until both begin together again";
    key.textContent = `A bar an update, ${until}: blue on-policy, orange off-policy and taller with age.`;
  };
  for (const name of ["library", "numbers"]) model.on(`change:${name}`, draw);
  draw();
  el.append(root);
}

export default { render, maths };
