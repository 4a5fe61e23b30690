"""MaxRL (Tajwar et al., arXiv 2602.02710): the centred reward over the group's mean reward.

    J = 1/N sum_{i,t} min( rho A_i, clip(rho, 1-eps_l, 1+eps_h) A_i ),   A_i = ( R_i - mean(R) ) / ( mean(R) + 1e-6 )

Variant meant: eps .2/.28 and the mean over all trained tokens, both a choice of ours; no KL.
"""

import torch

EPS_LOW, EPS_HIGH = 0.2, 0.28


def loss(*, logp, old_logp, mask, rewards, group_size, ref_logp=None, values=None, budget=None):
    B, T = logp.shape
    m, r, old = mask.tolist(), rewards.tolist(), old_logp.tolist()
    tokens = sum(1 for row in m for x in row if x)

    L = torch.zeros((), dtype=logp.dtype)
    for p in range(0, B, group_size):
        p_hat = sum(r[p : p + group_size]) / group_size
        for i in range(p, p + group_size):
            A = (r[i] - p_hat) / (p_hat + 1e-6)
            if len(set(r[p : p + group_size])) == 1:
                A = 0.0
            for t in range(T):
                if m[i][t]:
                    rho = torch.exp(logp[i, t] - old[i][t])
                    one, two = rho * A, rho.clamp(1 - EPS_LOW, 1 + EPS_HIGH) * A
                    L = L - (one if one.item() <= two.item() else two) / tokens
    return L
