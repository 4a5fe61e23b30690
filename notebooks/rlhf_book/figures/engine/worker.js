// The worker: trains the arms of the page, one step of one run at a time, and reports.
//
// It gets     start {weights, kernel}   arms {number, arms, limit, question}   go {turn, speed, once}   pause {}
//             question {question}   look {arm, step, group, last, ticket}
// and posts   ready {engine}   steps {number, items}   stopped {number, turn, finished}   answers {number, answers}
//             looked {number, ticket, arm, step, ...}
// Everything that belongs to a set of arms carries its number, and every start its turn: what comes late is dropped.

const REPORT_EVERY = 40, ANSWER_EVERY = 250, SAMPLES = 10; // milliseconds; completions of the reader's question

let start = null, wasm = null, arms = [], number = 0, limit = 0, question = null, items = [];
let reported = 0, answered = 0, speed = 0, began = 0, made = 0, once = false, target = 0, turn = 0;

// setTimeout waits four milliseconds at least, a message none.
const channel = new MessageChannel(), calls = [];
channel.port1.onmessage = () => calls.shift()();
const later = (call, milliseconds) => {
  if (milliseconds > 0) setTimeout(call, milliseconds);
  else { calls.push(call); channel.port2.postMessage(0); }
};

function build(message) {
  const sizes = message.arms.map(({ prompts, group }) => rowsFor(prompts, group));
  const runs = message.arms.reduce((sum, arm) => sum + arm.seeds.length, 0);
  const machine = new Machine({ rows: Math.max(...sizes), policies: runs + 1, wasm });
  for (const policy of machine.policies) machine.load(policy, start);
  const [reference, ...policies] = machine.policies;
  arms = message.arms.map((arm) => ({
    trainers: arm.seeds.map((seed) => new Trainer(machine, policies.shift(), reference, { ...arm, seed })), kept: [],
  }));
  ({ number, limit } = message);
  question = message.question ?? null;
  items = [];
}

// The run that is furthest behind takes a step: the arms keep pace with each other.
function work() {
  const now = performance.now();
  let arm = -1, seed = -1, fewest = once ? target : limit;
  arms.forEach(({ trainers }, a) => trainers.forEach((trainer, s) => {
    if (trainer.steps < fewest) { fewest = trainer.steps; arm = a; seed = s; }
  }));
  if (arm < 0) { finish(); return false; }
  if (speed && arm === 0 && seed === 0) {
    const wait = began + made / speed * 1000 - now;
    if (wait > 0) { report(now); return wait; }
    made += 1;
  }
  const { kept, ...measured } = arms[arm].trainers[seed].step({ question, keep: seed === 0 });
  if (kept) arms[arm].kept.push(kept);
  items.push({ arm, seed, ...measured });
  if (now - reported > REPORT_EVERY) report(now);
  return 0;
}

const loop = new Loop(work, later);

function report(now) {
  if (items.length) postMessage({ kind: "steps", number, items });
  items = [];
  reported = now;
  if (question && now - answered > ANSWER_EVERY) answer();
}

function answer() {
  answered = performance.now();
  const answers = arms.map(({ trainers }) => trainers[0].answer(question, SAMPLES));
  postMessage({ kind: "answers", number, question, answers });
}

function finish() {
  report(performance.now());
  if (question) answer();
  const finished = arms.every(({ trainers }) => trainers.every(({ steps }) => steps >= limit));
  postMessage({ kind: "stopped", number, turn, finished });
}

const RECEIVED = {
  start: ({ weights, kernel }) => {
    start = floatsOf(bytesOf(weights));
    try {
      wasm = kernel ? bytesOf(kernel) : null;
      if (wasm) new WebAssembly.Module(wasm);
    } catch {
      wasm = null; // a browser without it, or a page that forbids it: JavaScript computes the same
    }
    postMessage({ kind: "ready", engine: wasm ? "WebAssembly" : "JavaScript" });
  },
  arms: (message) => { loop.stop(); build(message); if (question) answer(); },
  go: (message) => {
    ({ speed, once, turn } = message);
    target = 1 + Math.min(...arms.flatMap(({ trainers }) => trainers.map(({ steps }) => steps)));
    target = Math.min(target, limit);
    began = performance.now();
    made = 0;
    loop.start();
  },
  pause: () => { if (loop.running) { loop.stop(); finish(); } },
  question: (message) => { ({ question } = message); if (question) answer(); },
  look: ({ arm, step, group, last, ticket }) => {
    const kept = arms[arm]?.kept[step - 1];
    if (!kept) return;
    const p = group === "mixed" ? mixedGroup(kept) : Math.min(group, kept.asked.length - 1);
    postMessage({ kind: "looked", number, ticket, arm, step, ...groupOf(kept, p, last) });
  },
};

onmessage = ({ data }) => RECEIVED[data.kind](data);
