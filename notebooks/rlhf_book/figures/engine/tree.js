// The tree of a batch: what completions share is one row, computed once. A row reads its ancestors only, so this is
// exact. With `shared` false every completion has rows of its own, as in any other program; a test compares the two.

class Tree {
  constructor(capacity) {
    this.capacity = capacity;
    this.token = new Int32Array(capacity);
    this.place = new Int32Array(capacity); // 0 is the first token of the prompt
    this.ancestors = new Int32Array(capacity * PLACES); // of a row, by place; the last one is the row itself
    this.rows = 0;
  }

  add(token, parent) {
    if (this.rows >= this.capacity) throw new Error(`a tree of ${this.capacity} rows is full`);
    const row = this.rows++, place = parent < 0 ? 0 : this.place[parent] + 1;
    this.token[row] = token;
    this.place[row] = place;
    for (let j = 0; j < place; j++) this.ancestors[row * PLACES + j] = this.ancestors[parent * PLACES + j];
    this.ancestors[row * PLACES + place] = row;
    return row;
  }
}

// The most rows that completions may need: their prompts and all tokens but the last.
const mostRows = (prompts, group) => prompts * QUESTION + prompts * group * (BUDGET - 1);

// Completions, `group` of each prompt: [B * BUDGET] tokens, the rows that chose them, and their log-probs.
//
// `next(completion, t, row)` chooses a token. The forward pass is the sample's own: the first update needs no other.
function rollout(machine, policy, tree, pass, prompts, group, next, shared = true) {
  const B = prompts.length * group, size = B * BUDGET;
  const batch = {
    B, group, tokens: new Uint8Array(size), row: new Int32Array(size), logp: new Float64Array(size),
    length: new Uint8Array(B),
  };
  const current = new Int32Array(B);
  tree.rows = 0;
  for (let i = 0; i < B; i++) {
    if (shared && i % group) { current[i] = current[i - 1]; continue; }
    let row = -1;
    for (const token of encode(prompts[Math.floor(i / group)])) row = tree.add(token, row);
    current[i] = row;
  }
  machine.forward(policy, tree, pass, 0, tree.rows);
  for (let t = 0; t < BUDGET; t++) {
    const from = tree.rows, children = new Map();
    for (let i = 0; i < B; i++) {
      if (current[i] < 0) continue;
      const row = current[i], token = next(i, t, row), key = row * VOCABULARY + token;
      batch.tokens[i * BUDGET + t] = token;
      batch.row[i * BUDGET + t] = row;
      batch.logp[i * BUDGET + t] = pass.logp[row * VOCABULARY + token];
      batch.length[i] = t + 1;
      if (token === END || t === BUDGET - 1) { current[i] = -1; continue; }
      let child = shared ? children.get(key) : undefined;
      if (child === undefined) { child = tree.add(token, row); children.set(key, child); }
      current[i] = child;
    }
    if (tree.rows > from) machine.forward(policy, tree, pass, from, tree.rows);
  }
  return batch;
}

// Ways to choose the next token.
const sampled = (pass, random) => (i, t, row) => {
  let left = random();
  for (let token = 0; token < VOCABULARY; token++) {
    left -= Math.exp(pass.logp[row * VOCABULARY + token]);
    if (left < 0) return token;
  }
  return greedy(pass)(i, t, row); // rounding: the probabilities add up to a little less than 1
};

const greedy = (pass) => (i, t, row) => {
  let best = 0;
  for (let token = 1; token < VOCABULARY; token++) {
    if (pass.logp[row * VOCABULARY + token] > pass.logp[row * VOCABULARY + best]) best = token;
  }
  return best;
};

const given = (tokens) => (i, t) => tokens[i][t];

const textOf = (batch, i) => decode(batch.tokens.subarray(i * BUDGET, i * BUDGET + batch.length[i]));
