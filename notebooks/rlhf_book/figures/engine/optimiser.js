// AdamW as torch has it, with the gradient's norm clipped first; the step of every row.

class AdamW {
  constructor(size) {
    this.first = new Float32Array(size); // running mean of the gradient
    this.second = new Float32Array(size); // and of its square
    this.steps = 0;
  }

  // Changes `weights`; returns the gradient's norm before it was clipped.
  step(weights, gradient, { lr, maxNorm = 1, decay = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8 }) {
    const { first, second } = this;
    let squares = 0;
    for (let i = 0; i < weights.length; i++) squares += gradient[i] * gradient[i];
    const norm = Math.sqrt(squares), scale = Math.min(1, maxNorm / (norm + 1e-6));
    this.steps += 1;
    const unbias1 = 1 - beta1 ** this.steps, unbias2 = Math.sqrt(1 - beta2 ** this.steps);
    for (let i = 0; i < weights.length; i++) {
      const g = gradient[i] * scale;
      first[i] = beta1 * first[i] + (1 - beta1) * g;
      second[i] = beta2 * second[i] + (1 - beta2) * g * g;
      weights[i] -= lr * (decay * weights[i] + first[i] / unbias1 / (Math.sqrt(second[i]) / unbias2 + eps));
    }
    return norm;
  }
}
