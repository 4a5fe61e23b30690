// A Llama of two layers and 83,072 weights: forward, and backward by hand.
//
// It works on rows: one token with its place, which reads the rows of its ancestors (tree.js) and no others.

const VOCABULARY = 13, WIDTH = 64, HIDDEN = 128, HEADS = 8, HEAD = 8, LAYERS = 2;
const PADDED = 16; // columns of the logits, since the kernel makes eight at a time; the last three are never read
const PLACES = QUESTION + BUDGET - 1; // the last token of a completion is never read
const EPS = 1e-6, THETA = 100, SCALE = 1 / Math.sqrt(HEAD);

// Name, rows, columns of the weights, in the order in which they lie in one array; a matrix as in torch, out x in.
const SHAPES = [["embed", PADDED, WIDTH]];
for (let layer = 0; layer < LAYERS; layer++) {
  SHAPES.push(
    [`norm1.${layer}`, 1, WIDTH], [`qkv.${layer}`, 3 * WIDTH, WIDTH], [`out.${layer}`, WIDTH, WIDTH],
    [`norm2.${layer}`, 1, WIDTH], [`gateUp.${layer}`, 2 * HIDDEN, WIDTH], [`down.${layer}`, WIDTH, HIDDEN],
  );
}
SHAPES.push(["norm", 1, WIDTH]);
const PLACE = {};
let WEIGHTS = 0;
for (const [name, rows, columns] of SHAPES) { PLACE[name] = WEIGHTS; WEIGHTS += rows * columns; }

const COS = new Float32Array(PLACES * HEAD / 2), SIN = new Float32Array(PLACES * HEAD / 2);
for (let place = 0; place < PLACES; place++) {
  for (let j = 0; j < HEAD / 2; j++) {
    const angle = place * THETA ** (-2 * j / HEAD);
    COS[place * HEAD / 2 + j] = Math.cos(angle);
    SIN[place * HEAD / 2 + j] = Math.sin(angle);
  }
}

// What a forward pass leaves behind, floats a row; the backward pass reads it.
const FORWARD = { last: WIDTH, normed: WIDTH, lastScale: 1, logits: PADDED };
for (let layer = 0; layer < LAYERS; layer++) {
  for (const [name, size] of Object.entries({
    x: WIDTH, a: WIDTH, aScale: 1, qkv: 3 * WIDTH, attention: HEADS * PLACES, heads: WIDTH,
    y: WIDTH, b: WIDTH, bScale: 1, gateUp: 2 * HIDDEN, active: HIDDEN,
  })) FORWARD[`${name}${layer}`] = size;
}
const BACKWARD = {
  dlogits: PADDED, dx: WIDTH, dnorm: WIDTH, dqkv: 3 * WIDTH, dheads: WIDTH, dgateUp: 2 * HIDDEN, dactive: HIDDEN,
};

// One memory for any number of policies, which take turns, and for two forward passes: that of the batch, whose
// backward pass is still to come, and another one beside it.
class Machine {
  constructor({ rows, policies, wasm = null }) {
    this.capacity = rows + 4; // the kernel writes whole fours of rows
    const parts = [["gradient", WEIGHTS]];
    for (let i = 0; i < policies; i++) parts.push([`weights${i}`, WEIGHTS], [`turned${i}`, WEIGHTS]);
    for (const pass of ["main", "side"]) {
      for (const name in FORWARD) parts.push([`${pass}.${name}`, this.capacity * FORWARD[name]]);
    }
    for (const name in BACKWARD) parts.push([name, this.capacity * BACKWARD[name]]);
    let bytes = 0;
    const at = {};
    for (const [name, size] of parts) { at[name] = bytes; bytes += Math.ceil(size / 16) * 64; }
    const { buffer, multiply } = makeMemory(bytes, wasm);
    const view = Object.fromEntries(parts.map(([name, size]) => [name, new Float32Array(buffer, at[name], size)]));
    Object.assign(this, { bytes, at, multiply, gradient: view.gradient, grads: view });
    this.policies = Array.from({ length: policies }, (_, i) => ({
      weights: view[`weights${i}`], turned: view[`turned${i}`], at: at[`weights${i}`], turnedAt: at[`turned${i}`],
    }));
    for (const pass of ["main", "side"]) {
      const own = { at: {}, logp: new Float64Array(this.capacity * VOCABULARY) };
      for (const name in FORWARD) { own[name] = view[`${pass}.${name}`]; own.at[name] = at[`${pass}.${name}`]; }
      this[pass] = own;
    }
  }

  load(policy, weights) {
    policy.weights.set(weights);
    this.turn(policy);
  }

  // The forward pass reads each matrix as columns x rows. To be called whenever the weights have changed.
  turn({ weights, turned }) {
    for (const [name, rows, columns] of SHAPES) {
      const o = PLACE[name];
      for (let i = 0; i < rows; i++) {
        for (let j = 0; j < columns; j++) turned[o + j * rows + i] = weights[o + i * columns + j];
      }
    }
  }

  // y = x W^T for rows from..to.
  apply(policy, pass, y, x, name, from, to, out, inn) {
    this.multiply(to - from, out, inn, pass.at[x] + 4 * from * inn, 4 * inn, 4,
      policy.turnedAt + 4 * PLACE[name], 4 * out, pass.at[y] + 4 * from * out, 4 * out, 0);
  }

  // dx = dy W, and dW += dy^T x.
  unapply(policy, pass, dx, dy, x, name, rows, out, inn) {
    this.multiply(rows, inn, out, this.at[dy], 4 * out, 4,
      policy.at + 4 * PLACE[name], 4 * inn, this.at[dx], 4 * inn, 0);
    this.multiply(out, inn, rows, this.at[dy], 4, 4 * out,
      pass.at[x], 4 * inn, this.at.gradient + 4 * PLACE[name], 4 * inn, 1);
  }

  // Fills what `pass` holds of the tree's rows from..to; their ancestors' have to be there. Log-probs are in pass.logp.
  forward(policy, tree, pass, from = 0, to = tree.rows) {
    const { weights } = policy;
    for (let r = from; r < to; r++) {
      const o = PLACE.embed + tree.token[r] * WIDTH;
      for (let i = 0; i < WIDTH; i++) pass.x0[r * WIDTH + i] = weights[o + i];
    }
    for (let layer = 0; layer < LAYERS; layer++) {
      const [x, qkv, y, gateUp, active] = ["x", "qkv", "y", "gateUp", "active"].map((name) => pass[name + layer]);
      const next = layer + 1 < LAYERS ? `x${layer + 1}` : "last";
      normalise(x, weights, PLACE[`norm1.${layer}`], pass[`a${layer}`], pass[`aScale${layer}`], from, to);
      this.apply(policy, pass, `qkv${layer}`, `a${layer}`, `qkv.${layer}`, from, to, 3 * WIDTH, WIDTH);
      rotate(qkv, tree, from, to, 1);
      attend(qkv, pass[`attention${layer}`], pass[`heads${layer}`], tree, from, to);
      this.apply(policy, pass, `y${layer}`, `heads${layer}`, `out.${layer}`, from, to, WIDTH, WIDTH);
      for (let i = from * WIDTH; i < to * WIDTH; i++) y[i] += x[i];
      normalise(y, weights, PLACE[`norm2.${layer}`], pass[`b${layer}`], pass[`bScale${layer}`], from, to);
      this.apply(policy, pass, `gateUp${layer}`, `b${layer}`, `gateUp.${layer}`, from, to, 2 * HIDDEN, WIDTH);
      for (let r = from; r < to; r++) {
        for (let i = 0; i < HIDDEN; i++) {
          const z = gateUp[r * 2 * HIDDEN + i];
          active[r * HIDDEN + i] = z / (1 + Math.exp(-z)) * gateUp[r * 2 * HIDDEN + HIDDEN + i];
        }
      }
      this.apply(policy, pass, next, `active${layer}`, `down.${layer}`, from, to, WIDTH, HIDDEN);
      for (let i = from * WIDTH; i < to * WIDTH; i++) pass[next][i] += y[i];
    }
    normalise(pass.last, weights, PLACE.norm, pass.normed, pass.lastScale, from, to);
    this.apply(policy, pass, "logits", "normed", "embed", from, to, PADDED, WIDTH);
    for (let r = from; r < to; r++) {
      const o = r * PADDED;
      let top = -Infinity, sum = 0;
      for (let i = 0; i < VOCABULARY; i++) if (pass.logits[o + i] > top) top = pass.logits[o + i];
      for (let i = 0; i < VOCABULARY; i++) sum += Math.exp(pass.logits[o + i] - top);
      const all = top + Math.log(sum);
      for (let i = 0; i < VOCABULARY; i++) pass.logp[r * VOCABULARY + i] = pass.logits[o + i] - all;
    }
  }

  // From grads.dlogits to the gradient of all weights, after a forward pass of the whole tree in `main`.
  backward(policy, tree) {
    const pass = this.main, rows = tree.rows, { gradient } = this;
    const { dx, dnorm, dqkv, dheads, dgateUp, dactive } = this.grads, { weights } = policy;
    gradient.fill(0);
    dx.fill(0, 0, rows * WIDTH);
    this.unapply(policy, pass, "dnorm", "dlogits", "normed", "embed", rows, PADDED, WIDTH);
    unnormalise(dnorm, pass.last, weights, PLACE.norm, pass.lastScale, dx, gradient, rows);
    for (let layer = LAYERS - 1; layer >= 0; layer--) {
      const gateUp = pass[`gateUp${layer}`];
      this.unapply(policy, pass, "dactive", "dx", `active${layer}`, `down.${layer}`, rows, WIDTH, HIDDEN);
      for (let r = 0; r < rows; r++) {
        for (let i = 0; i < HIDDEN; i++) {
          const gate = r * 2 * HIDDEN + i, up = gate + HIDDEN, z = gateUp[gate], d = dactive[r * HIDDEN + i];
          const sigmoid = 1 / (1 + Math.exp(-z));
          dgateUp[gate] = d * gateUp[up] * sigmoid * (1 + z * (1 - sigmoid));
          dgateUp[up] = d * z * sigmoid;
        }
      }
      this.unapply(policy, pass, "dnorm", "dgateUp", `b${layer}`, `gateUp.${layer}`, rows, 2 * HIDDEN, WIDTH);
      unnormalise(dnorm, pass[`y${layer}`], weights, PLACE[`norm2.${layer}`], pass[`bScale${layer}`], dx, gradient, rows);
      this.unapply(policy, pass, "dheads", "dx", `heads${layer}`, `out.${layer}`, rows, WIDTH, WIDTH);
      dqkv.fill(0, 0, rows * 3 * WIDTH);
      unattend(dheads, dqkv, pass[`qkv${layer}`], pass[`attention${layer}`], tree);
      rotate(dqkv, tree, 0, rows, -1);
      this.unapply(policy, pass, "dnorm", "dqkv", `a${layer}`, `qkv.${layer}`, rows, 3 * WIDTH, WIDTH);
      unnormalise(dnorm, pass[`x${layer}`], weights, PLACE[`norm1.${layer}`], pass[`aScale${layer}`], dx, gradient, rows);
    }
    for (let r = 0; r < rows; r++) {
      const o = PLACE.embed + tree.token[r] * WIDTH;
      for (let i = 0; i < WIDTH; i++) gradient[o + i] += dx[r * WIDTH + i];
    }
  }
}

// y = x / rms(x) * w, with 1 / rms(x) kept.
function normalise(x, weights, w, y, scales, from, to) {
  for (let r = from; r < to; r++) {
    const o = r * WIDTH;
    let squares = 0;
    for (let i = 0; i < WIDTH; i++) squares += x[o + i] * x[o + i];
    const scale = 1 / Math.sqrt(squares / WIDTH + EPS);
    scales[r] = scale;
    for (let i = 0; i < WIDTH; i++) y[o + i] = x[o + i] * scale * weights[w + i];
  }
}

// dx += what comes through the norm, and the gradient of its weights.
function unnormalise(dy, x, weights, w, scales, dx, gradient, rows) {
  for (let r = 0; r < rows; r++) {
    const o = r * WIDTH, scale = scales[r];
    let along = 0;
    for (let i = 0; i < WIDTH; i++) {
      const unit = x[o + i] * scale;
      gradient[w + i] += dy[o + i] * unit;
      along += dy[o + i] * weights[w + i] * unit;
    }
    along /= WIDTH;
    for (let i = 0; i < WIDTH; i++) dx[o + i] += scale * (dy[o + i] * weights[w + i] - x[o + i] * scale * along);
  }
}

// Turns queries and keys by their place; with sign -1 it is the way back.
function rotate(qkv, tree, from, to, sign) {
  const half = HEAD / 2;
  for (let r = from; r < to; r++) {
    const angle = tree.place[r] * half;
    for (let head = 0, o = r * 3 * WIDTH; head < 2 * HEADS; head++, o += HEAD) { // the keys lie behind the queries
      for (let j = 0; j < half; j++) {
        const a = qkv[o + j], b = qkv[o + j + half], cos = COS[angle + j], sin = sign * SIN[angle + j];
        qkv[o + j] = a * cos - b * sin;
        qkv[o + j + half] = b * cos + a * sin;
      }
    }
  }
}

// The product of two vectors of HEAD = 8 floats, written out: this is half of the time outside the kernel.
const dot8 = (x, i, y, j) => x[i] * y[j] + x[i + 1] * y[j + 1] + x[i + 2] * y[j + 2] + x[i + 3] * y[j + 3] +
  x[i + 4] * y[j + 4] + x[i + 5] * y[j + 5] + x[i + 6] * y[j + 6] + x[i + 7] * y[j + 7];

function attend(qkv, attention, heads, { place, ancestors }, from, to) {
  for (let r = from; r < to; r++) {
    const seen = place[r] + 1, own = r * PLACES;
    for (let head = 0; head < HEADS; head++) {
      const q = r * 3 * WIDTH + head * HEAD, w = (r * HEADS + head) * PLACES, o = r * WIDTH + head * HEAD;
      let top = -Infinity, sum = 0;
      for (let j = 0; j < seen; j++) {
        const k = ancestors[own + j] * 3 * WIDTH + WIDTH + head * HEAD;
        const score = SCALE * dot8(qkv, q, qkv, k);
        attention[w + j] = score;
        if (score > top) top = score;
      }
      for (let j = 0; j < seen; j++) sum += attention[w + j] = Math.exp(attention[w + j] - top);
      for (let i = 0; i < HEAD; i++) heads[o + i] = 0;
      for (let j = 0; j < seen; j++) {
        const share = attention[w + j] /= sum, v = ancestors[own + j] * 3 * WIDTH + 2 * WIDTH + head * HEAD;
        for (let i = 0; i < HEAD; i++) heads[o + i] += share * qkv[v + i];
      }
    }
  }
}

const DSHARE = new Float64Array(PLACES);

function unattend(dheads, dqkv, qkv, attention, { rows, place, ancestors }) {
  for (let r = 0; r < rows; r++) {
    const seen = place[r] + 1, own = r * PLACES;
    for (let head = 0; head < HEADS; head++) {
      const q = r * 3 * WIDTH + head * HEAD, w = (r * HEADS + head) * PLACES, o = r * WIDTH + head * HEAD;
      let mean = 0;
      for (let j = 0; j < seen; j++) {
        const v = ancestors[own + j] * 3 * WIDTH + 2 * WIDTH + head * HEAD, share = attention[w + j];
        DSHARE[j] = dot8(dheads, o, qkv, v);
        mean += share * DSHARE[j];
        for (let i = 0; i < HEAD; i++) dqkv[v + i] += share * dheads[o + i];
      }
      for (let j = 0; j < seen; j++) {
        const k = ancestors[own + j] * 3 * WIDTH + WIDTH + head * HEAD;
        const d = attention[w + j] * (DSHARE[j] - mean) * SCALE;
        for (let i = 0; i < HEAD; i++) {
          dqkv[q + i] += d * qkv[k + i];
          dqkv[k + i] += d * qkv[q + i];
        }
      }
    }
  }
}
