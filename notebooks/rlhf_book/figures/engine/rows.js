// The cells of the table, and the loss that they make: from log-probs to a number, and to what it asks of each token.
//
// rows.json says which row has which cells. Arrays are [B * T], T = BUDGET, only the first `length[i]` places of a
// completion count. Every cell is held to rlhf_minimal by numbers that the library has computed.

const forTokens = (batch, call) => {
  for (let i = 0; i < batch.B; i++) for (let t = 0; t < batch.length[i]; t++) call(i * BUDGET + t, i, t);
};

// ---- who gets the credit? No gradient. ----

const sumOver = (x, batch, i) => {
  let sum = 0;
  for (let t = 0; t < batch.length[i]; t++) sum += x[i * BUDGET + t];
  return sum;
};

// One number a completion, from the rewards of its group.
const ofGroup = (compare) => (tokenRewards, batch) => {
  const advantages = new Float64Array(batch.B * BUDGET), { group } = batch;
  for (let first = 0; first < batch.B; first += group) {
    const rewards = Array.from({ length: group }, (_, j) => sumOver(tokenRewards, batch, first + j));
    const mean = rewards.reduce((a, b) => a + b) / group;
    const equal = rewards.every((reward) => reward === rewards[0]); // the mean of equal numbers need not be that number
    const std = Math.sqrt(rewards.reduce((sum, reward) => sum + (reward - mean) ** 2, 0) / (group - 1));
    for (let j = 0; j < group; j++) {
      advantages.fill(equal ? 0 : compare(rewards[j] - mean, std, group), (first + j) * BUDGET, (first + j + 1) * BUDGET);
    }
  }
  return advantages;
};

const ADVANTAGES = {
  returns_to_go: (tokenRewards, batch) => {
    const advantages = new Float64Array(batch.B * BUDGET);
    for (let i = 0; i < batch.B; i++) {
      let toGo = 0;
      for (let t = batch.length[i] - 1; t >= 0; t--) advantages[i * BUDGET + t] = toGo += tokenRewards[i * BUDGET + t];
    }
    return advantages;
  },
  group_centered: ofGroup((centred) => centred),
  group_normalized: ofGroup((centred, std) => centred / (std + 1e-4)),
  leave_one_out: ofGroup((centred, std, group) => centred * group / (group - 1)),
};

const NORMALIZERS = {
  whiten: (advantages, batch) => {
    let tokens = 0, sum = 0, squares = 0;
    forTokens(batch, (k) => { tokens += 1; sum += advantages[k]; });
    forTokens(batch, (k) => { squares += (advantages[k] - sum / tokens) ** 2; });
    const scale = 1 / Math.sqrt(squares / (tokens - 1) + 1e-8);
    return advantages.map((a) => (a - sum / tokens) * scale);
  },
};

// The advantages [B * T] of a row: rewards [B], less a KL penalty where the row has it in the reward.
function prepare(row, batch, rewards, kl = 0, reference = null) {
  const tokenRewards = new Float64Array(batch.B * BUDGET);
  for (let i = 0; i < batch.B; i++) tokenRewards[i * BUDGET + batch.length[i] - 1] = rewards[i];
  if (kl > 0 && row.kl === "reward") forTokens(batch, (k) => { tokenRewards[k] -= kl * (batch.logp[k] - reference[k]); });
  const advantages = ADVANTAGES[row.advantage](tokenRewards, batch);
  return row.normalize ? NORMALIZERS[row.normalize](advantages, batch) : advantages;
}

// ---- how far has the policy moved? The ratio of each token; and, for slopes with respect to the ratios, those with
// respect to the log-probs. ----

const RATIOS = {
  on_policy: { of: (now, batch) => new Float64Array(batch.B * BUDGET).fill(1), back: (slope) => slope },
  token: {
    of: (now, batch) => now.map((logp, k) => Math.exp(logp - batch.logp[k])),
    back: (slope, ratio) => slope.map((s, k) => s * ratio[k]),
  },
  sequence: { // the geometric mean over the completion
    of: (now, batch) => {
      const ratio = new Float64Array(batch.B * BUDGET);
      for (let i = 0; i < batch.B; i++) {
        const change = (sumOver(now, batch, i) - sumOver(batch.logp, batch, i)) / batch.length[i];
        ratio.fill(Math.exp(change), i * BUDGET, i * BUDGET + batch.length[i]);
      }
      return ratio;
    },
    back: (slope, ratio, batch) => {
      const all = new Float64Array(batch.B * BUDGET);
      for (let i = 0; i < batch.B; i++) {
        const each = sumOver(slope, batch, i) * ratio[i * BUDGET] / batch.length[i];
        all.fill(each, i * BUDGET, i * BUDGET + batch.length[i]);
      }
      return all;
    },
  },
};

// ---- how much of the step is allowed? [objective, its slope in the ratio, whether the bound is at work] ----

const GATES = {
  none: (ratio, A) => [ratio * A, A, false],
  clip: (ratio, A, { low, high }) => {
    const within = Math.min(Math.max(ratio, 1 - low), 1 + high);
    return ratio * A <= within * A ? [ratio * A, A, false] : [within * A, 0, true];
  },
  clip_weight: (ratio, A, { cap }) => {
    const weight = Math.min(ratio, cap);
    return [weight * A, weight / ratio * A, A !== 0 && ratio > cap];
  },
  sigmoid: (ratio, A, { tau_pos, tau_neg }) => {
    const tau = A > 0 ? tau_pos : tau_neg, s = 1 / (1 + Math.exp(-tau * (ratio - 1)));
    return [4 / tau * s * A, 4 * s * (1 - s) * A, false];
  },
};

// ---- who counts how much? The share of each token; a geometric mean has none. ----

const SHARES = {
  sequence_sum: (batch) => () => 1 / batch.B,
  sequence_mean: (batch) => (i) => 1 / (batch.B * batch.length[i]),
  token_mean: (batch) => {
    const tokens = batch.length.reduce((sum, length) => sum + length, 0);
    return () => 1 / tokens;
  },
  fixed_length: (batch) => () => 1 / (batch.B * BUDGET),
};

// The objective of a batch, and its slopes in the objectives of the tokens.
function aggregate(name, x, batch) {
  const slope = new Float64Array(batch.B * BUDGET);
  let value = 0;
  if (name === "geometric_mean") {
    for (let i = 0; i < batch.B; i++) {
      const n = batch.length[i], own = x.subarray(i * BUDGET, i * BUDGET + n);
      if (own.some((y) => y === 0)) continue;
      const size = Math.exp(own.reduce((sum, y) => sum + Math.log(Math.abs(y)), 0) / n) / batch.B;
      value += Math.sign(own[0]) * size;
      own.forEach((y, t) => { slope[i * BUDGET + t] = size / (n * Math.abs(y)); });
    }
    return { value, slope };
  }
  const share = SHARES[name](batch);
  forTokens(batch, (k, i) => { slope[k] = share(i); value += share(i) * x[k]; });
  return { value, slope };
}

// The loss of a row, to be minimised, and its slopes with respect to the log-probs `now`.
//
// Returns { loss, slope: [B * T], bound: [B * T] of 0 and 1, 1 where the gate's bound is at work, bounded: their share }.
function policyLoss(row, batch, advantages, now, kl = 0, reference = null) {
  const ratio = RATIOS[row.ratio].of(now, batch), size = batch.B * BUDGET;
  const x = new Float64Array(size), inRatio = new Float64Array(size), bound = new Uint8Array(size);
  let tokens = 0, bounded = 0;
  forTokens(batch, (k) => {
    const [objective, slope, atWork] = GATES[row.gate](ratio[k], advantages[k], row.bounds);
    x[k] = objective;
    inRatio[k] = slope;
    bound[k] = atWork;
    tokens += 1;
    bounded += atWork;
  });
  const { value, slope: share } = aggregate(row.aggregate, x, batch);
  const slope = RATIOS[row.ratio].back(inRatio.map((s, k) => -s * share[k]), ratio, batch);
  let loss = -value;
  if (row.tau) { // Kimi's square of how far the whole completion has moved
    for (let i = 0; i < batch.B; i++) {
      const moved = sumOver(now, batch, i) - sumOver(batch.logp, batch, i);
      loss += row.tau * 0.5 * moved ** 2 / batch.B;
      for (let t = 0; t < batch.length[i]; t++) slope[i * BUDGET + t] += row.tau * moved / batch.B;
    }
  }
  if (kl > 0 && row.kl === "loss") { // the estimator k3, per token
    const each = SHARES[row.aggregate === "geometric_mean" ? "sequence_mean" : row.aggregate](batch);
    forTokens(batch, (k, i) => {
      const d = now[k] - reference[k];
      loss += kl * each(i) * (Math.expm1(-d) + d);
      slope[k] += kl * each(i) * -Math.expm1(-d);
    });
  }
  return { loss, slope, bound, bounded: bounded / tokens };
}
