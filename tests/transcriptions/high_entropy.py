"""High-entropy tokens (Wang et al., arXiv 2506.01939): DAPO's loss on a share of the tokens.

    J = 1/N sum_{i,t} [ H_t >= tau ] min( rho A_i, clip(rho, 1-eps_l, 1+eps_h) A_i ),   N = sum |o_i|

tau is the (1 - share) quantile of the entropies of all trained tokens, between two of them on a straight line. Variant
meant: share .2, eps .2/.28, sample std + 1e-4, N counts all tokens, no length reward.
"""

import math

import torch

SHARE, EPS_LOW, EPS_HIGH = 0.2, 0.2, 0.28


def threshold(entropies):
    ordered = sorted(entropies)
    place = (1 - SHARE) * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def loss(*, logp, old_logp, mask, rewards, group_size, ref_logp=None, values=None, budget=None, entropy=None):
    B, T = logp.shape
    m, r, old, H = (x.tolist() for x in (mask, rewards, old_logp, entropy))
    trained = [(i, t) for i in range(B) for t in range(T) if m[i][t]]
    tau = threshold([H[i][t] for i, t in trained])

    L = torch.zeros((), dtype=logp.dtype)
    for i, t in trained:
        group = r[i // group_size * group_size :][:group_size]
        mean = sum(group) / group_size
        std = math.sqrt(sum((x - mean) ** 2 for x in group) / (group_size - 1))
        A = 0.0 if max(group) == min(group) else (r[i] - mean) / (std + 1e-4)
        if H[i][t] >= tau - 1e-12:
            rho = torch.exp(logp[i, t] - old[i][t])
            one, two = rho * A, rho.clamp(1 - EPS_LOW, 1 + EPS_HIGH) * A
            L = L - (one if one.item() <= two.item() else two) / len(trained)
    return L
