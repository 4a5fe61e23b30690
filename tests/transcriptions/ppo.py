"""PPO for language models (Schulman et al., arXiv 1707.06347, equation 7; GAE, arXiv 1506.02438, equation 16;
KL in the reward as in InstructGPT, arXiv 2203.02155, equation 2 / Ziegler et al., arXiv 1909.08593, equation
2).

    r_t     = -beta ( log pi_old(o_t) - log pi_ref(o_t) )  +  [t is the last trained token] r(q, o)
    delta_t = r_t + gamma V(s_{t+1}) - V(s_t)                        V after the last trained token is 0
    A_t     = sum_l (gamma lambda)^l delta_{t+l}
    L       = mean_i 1/|o_i| sum_t min( rho_t A_t, clip(rho_t, 1-eps, 1+eps) A_t )

Variant meant: gamma 1, lambda .95, eps .2, beta .02, advantages whitened over all trained tokens of the batch
(mean 0, sample variance 1, 1e-8 under the root), token loss averaged per response (DeepSeekMath's way of
writing PPO, arXiv 2402.03300 equation 1). An untrained token inside a response is not a step: "t + 1" is the
next *trained* token. One trained token in the whole batch has no sample variance: that is an error, not
a number.
"""

import math

import torch

GAMMA, LAMBDA, EPS, BETA = 1.0, 0.95, 0.2, 0.02


def loss(*, logp, old_logp, mask, rewards, group_size, ref_logp=None, values=None, budget=None):
    B, T = logp.shape
    m, r, pi_old, pi_ref, V = (x.tolist() for x in (mask, rewards, old_logp, ref_logp, values))

    A = {}
    for i in range(B):
        o = [t for t in range(T) if m[i][t]]
        for n, t in enumerate(o):
            A[i, t] = 0.0
            for k in range(len(o) - n):  # the sum of equation 16, written out
                s = o[n + k]
                last = n + k == len(o) - 1
                reward = -BETA * (pi_old[i][s] - pi_ref[i][s]) + (r[i] if last else 0.0)
                V_next = 0.0 if last else V[i][o[n + k + 1]]
                delta = reward + GAMMA * V_next - V[i][s]
                A[i, t] += (GAMMA * LAMBDA) ** k * delta

    N = len(A)
    mean = sum(A.values()) / N
    if N == 1:
        raise ValueError("one token cannot be whitened")
    var = sum((a - mean) ** 2 for a in A.values()) / (N - 1)
    A = {it: (a - mean) / math.sqrt(var + 1e-8) for it, a in A.items()}

    L = torch.zeros((), dtype=logp.dtype)
    for i in range(B):
        o = [t for t in range(T) if m[i][t]]
        for t in o:
            rho = torch.exp(logp[i, t] - pi_old[i][t])
            # A plain number: wherever it differs from rho A, it is a bound and has no gradient.
            clipped = min(max(rho.item(), 1 - EPS), 1 + EPS) * A[i, t]
            unclipped = rho * A[i, t]
            term = unclipped if unclipped.item() <= clipped else torch.tensor(clipped, dtype=logp.dtype)
            L = L + term / len(o) / B
    return -L
