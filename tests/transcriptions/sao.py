"""SAO (Hou et al., arXiv 2607.07508): one response a prompt, GAE with a lambda by length, a hard window on the ratio.

    J = 1/N sum_{i,t} f( w ) A_{i,t},   f(w) = w if 1-eps_l < w < 1+eps_h, else 0,   w = pi_theta / pi_sampler
    A_t = delta_t + lambda_i A_{t+1},   delta_t = r_t + V_{t+1} - V_t,   lambda_i = 1 - 1 / max( alpha |o_i|, 1 )

Variant meant: eps .3/5, alpha 1.5, discount 1, the reward on the last trained token, t + 1 the next trained token,
N = all trained tokens. old_logp is the sampler's here. What the critic is taught is no part of this loss.
"""

import torch

EPS_LOW, EPS_HIGH, ALPHA = 0.3, 5.0, 1.5


def loss(*, logp, old_logp, mask, rewards, group_size, ref_logp=None, values=None, budget=None):
    B, T = logp.shape
    m, R, V, sampler = mask.tolist(), rewards.tolist(), values.tolist(), old_logp.tolist()
    N = sum(1 for i in range(B) for t in range(T) if m[i][t])

    J = torch.zeros((), dtype=logp.dtype)
    for i in range(B):
        o = [t for t in range(T) if m[i][t]]
        lam = 1 - 1 / max(ALPHA * len(o), 1.0)
        following, A = 0.0, 0.0
        for t in reversed(o):
            r = R[i] if t == o[-1] else 0.0
            A = r + following - V[i][t] + lam * A
            following = V[i][t]
            w = torch.exp(logp[i, t] - sampler[i][t])
            if 1 - EPS_LOW < w.item() < 1 + EPS_HIGH:
                J = J + w * A
    return -J / N
