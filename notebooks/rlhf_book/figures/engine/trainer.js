// One run: sample, check, compare, update; and what the page wants to see of each step.

const TEST_QUESTIONS = 64, TEST_EVERY = 10; // held-out questions, answered greedily
const DISTANCE_EVERY = 5; // steps between two measurements of the KL to the start, where the loss does not need it
const mean = (numbers) => numbers.reduce((a, b) => a + b, 0) / numbers.length;

// The questions of the test, the same for all runs.
const testQuestions = (() => {
  const random = randomNumbers(2026);
  return Array.from({ length: TEST_QUESTIONS }, () => makePrompt(random, "test"));
})();

class Trainer {
  // settings: { row, lr, prompts, group, updates, verdict, values: [wrong, right], kl, seed }; the row is one of rows.json,
  // with the bounds that are wanted. `reference` is a policy of the machine that nobody changes.
  constructor(machine, policy, reference, settings, { shared = true } = {}) {
    Object.assign(this, { machine, policy, reference, settings, shared });
    this.optimiser = new AdamW(WEIGHTS);
    this.tree = new Tree(machine.capacity - 4);
    this.aside = new Tree(machine.capacity - 4); // for the test and for the reader's own question
    const { seed } = settings;
    this.asking = randomNumbers(4 * seed + 1);
    this.sampling = randomNumbers(4 * seed + 2);
    this.tossing = randomNumbers(4 * seed + 3);
    this.steps = 0;
  }

  // One step of the run. `question` is the reader's; `keep` asks for what is needed to look at the step again.
  step({ question = null, keep = false } = {}) {
    const { machine, policy, tree, settings: { row, lr, prompts, group, updates, verdict, values, kl } } = this;
    const measured = this.steps % TEST_EVERY === 0 ? { greedy: this.test() } : {};
    if (question) measured.question = this.answer(question).right;
    const asked = Array.from({ length: prompts }, () => makePrompt(this.asking));
    const pass = machine.main;
    const batch = rollout(machine, policy, tree, pass, asked, group, sampled(pass, this.sampling), this.shared);
    const texts = Array.from({ length: batch.B }, (_, i) => textOf(batch, i));
    const promptOf = (i) => asked[Math.floor(i / group)];
    const right = texts.map((text, i) => Number(text === rightAnswer(promptOf(i))));
    const rewards = texts.map((text, i) => values[Number(VERDICTS[verdict](text, promptOf(i), this.tossing))]);
    const { entropy, ...start } = this.look(batch, kl > 0 || this.steps % DISTANCE_EVERY === 0);
    const { reference = null } = start;
    if (start.reference) measured.kl = start.distance;
    const advantages = prepare(row, batch, rewards, kl, reference);
    const kept = keep ? { group, asked, texts, right, rewards, advantages, updates: [] } : null; // the first update and the last
    let out = null, norm = 0;
    for (let update = 0; update < updates; update++) {
      if (update) machine.forward(policy, tree, pass);
      const now = this.logProbs(batch, pass);
      out = policyLoss(row, batch, advantages, now, kl, reference);
      if (kept && (update === 0 || update === updates - 1)) {
        kept.updates.push({
          update: update + 1, bound: out.bound, logp: Float32Array.from(now),
          push: Float32Array.from(out.slope, (slope) => -slope * batch.B),
        });
      }
      this.spread(batch, out.slope);
      machine.backward(policy, tree);
      norm = this.optimiser.step(policy.weights, machine.gradient, { lr });
      machine.turn(policy);
    }
    this.steps += 1;
    return {
      step: this.steps, right: mean(right), reward: mean(rewards), entropy, clipped: out.bounded, norm, loss: out.loss,
      rows: tree.rows, ...measured, kept,
    };
  }

  // Of each token of the batch its log-prob under a forward pass.
  logProbs(batch, pass) {
    const logp = new Float64Array(batch.B * BUDGET);
    forTokens(batch, (k) => { logp[k] = pass.logp[batch.row[k] * VOCABULARY + batch.tokens[k]]; });
    return logp;
  }

  // Entropy, and if wanted KL to the start, where the completions went, exact over the next token: the entropy is the mean
  // of the tokens, in nats; the KL the mean of the completions, summed over their tokens. And the start's log-probs.
  look(batch, start) {
    const { machine, tree } = this, own = machine.main.logp, other = machine.side.logp;
    const visits = new Float64Array(tree.rows);
    forTokens(batch, (k) => { visits[batch.row[k]] += 1; });
    if (start) machine.forward(this.reference, tree, machine.side);
    let entropy = 0, distance = 0, tokens = 0;
    for (let row = 0; row < tree.rows; row++) {
      if (!visits[row]) continue;
      tokens += visits[row];
      for (let i = row * VOCABULARY; i < (row + 1) * VOCABULARY; i++) {
        const p = visits[row] * Math.exp(own[i]);
        entropy -= p * own[i];
        if (start) distance += p * (own[i] - other[i]);
      }
    }
    if (!start) return { entropy: entropy / tokens };
    return { entropy: entropy / tokens, distance: distance / batch.B, reference: this.logProbs(batch, machine.side) };
  }

  // From slopes in the log-probs of tokens to slopes in the logits of rows.
  spread(batch, slope) {
    const { dlogits } = this.machine.grads, { logp } = this.machine.main, total = new Float64Array(this.tree.rows);
    dlogits.fill(0, 0, this.tree.rows * PADDED);
    forTokens(batch, (k) => {
      dlogits[batch.row[k] * PADDED + batch.tokens[k]] += slope[k];
      total[batch.row[k]] += slope[k];
    });
    for (let row = 0; row < this.tree.rows; row++) {
      if (total[row] === 0) continue;
      for (let i = 0; i < VOCABULARY; i++) dlogits[row * PADDED + i] -= total[row] * Math.exp(logp[row * VOCABULARY + i]);
    }
  }

  // The share of held-out questions whose greedy completion is right.
  test() {
    const { machine, policy, aside } = this;
    const batch = rollout(machine, policy, aside, machine.side, testQuestions, 1, greedy(machine.side));
    return mean(testQuestions.map((question, i) => Number(textOf(batch, i) === rightAnswer(question))));
  }

  // What the model makes of a question: its greedy completion, ten samples, and the probability of the right answer.
  answer(question, samples = 0) {
    const { machine, policy, aside } = this, pass = machine.side;
    const write = (group, next) => {
      const batch = rollout(machine, policy, aside, pass, [question], group, next);
      return { batch, texts: Array.from({ length: group }, (_, i) => textOf(batch, i)) };
    };
    const wanted = encode(rightAnswer(question));
    const { batch } = write(1, given([wanted]));
    const right = Math.exp(this.logProbs(batch, pass).reduce((a, b) => a + b, 0));
    if (!samples) return { right };
    const best = write(1, greedy(pass)), random = randomNumbers(1000 + this.steps);
    return {
      question, wanted: rightAnswer(question), right, greedy: best.texts[0],
      confidence: Math.exp(this.logProbs(best.batch, pass).reduce((a, b) => a + b, 0)),
      samples: write(samples, sampled(pass, random)).texts,
    };
  }
}

// One group of a step that was kept, as the page draws it: of each completion its text, reward and verdict, and of each of
// its tokens the advantage, the probability before the chosen update and the push that this update gave to it.
function groupOf(kept, p, last) {
  const { updates, group } = kept, { update, logp, push, bound } = updates[last ? updates.length - 1 : 0];
  const completions = Array.from({ length: group }, (_, j) => {
    const i = p * group + j, from = i * BUDGET, to = from + kept.texts[i].length;
    return {
      text: kept.texts[i], right: kept.right[i], reward: kept.rewards[i], advantage: [...kept.advantages.slice(from, to)],
      prob: [...logp.slice(from, to)].map(Math.exp), push: [...push.slice(from, to)], bound: [...bound.slice(from, to)],
    };
  });
  return { group: p, of: kept.asked.length, update, prompt: kept.asked[p], wanted: rightAnswer(kept.asked[p]), completions };
}

// The first group in which some completions are right and some wrong; or else the first.
function mixedGroup({ right, group }) {
  for (let p = 0; p * group < right.length; p++) {
    const own = right.slice(p * group, (p + 1) * group);
    if (own.includes(0) && own.includes(1)) return p;
  }
  return 0;
}

// The rows of a machine that these settings need, whatever is sampled.
const rowsFor = (prompts, group) => Math.max(mostRows(prompts, group), mostRows(TEST_QUESTIONS, 1));
