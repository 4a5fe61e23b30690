"""LUSPO (Liu et al., arXiv 2602.05261): GSPO's objective with each sequence's term multiplied by its length.

    J = 1/B sum_i |o_i| min( s_i A_i, clip(s_i, 1-eps_l, 1+eps_h) A_i ),   s_i = ( prod_t rho_{i,t} )^{1/|o_i|}
    A_i = ( R_i - mean(R) ) / ( std(R) + 1e-4 )

Variant meant: eps 2e-3/2.5e-3, sample std, no KL; |o_i| counts trained tokens.
"""

import torch

EPS_LOW, EPS_HIGH = 2e-3, 2.5e-3


def loss(*, logp, old_logp, mask, rewards, group_size, ref_logp=None, values=None, budget=None):
    B, T = logp.shape
    m, r, old = mask.tolist(), rewards.tolist(), old_logp.tolist()

    J = torch.zeros((), dtype=logp.dtype)
    for i in range(B):
        o = [t for t in range(T) if m[i][t]]
        first = i - i % group_size
        group = r[first : first + group_size]
        if not o or min(group) == max(group):
            continue
        mean = sum(group) / group_size
        std = (sum((x - mean) ** 2 for x in group) / (group_size - 1)) ** 0.5
        A = (r[i] - mean) / (std + 1e-4)
        log_s = torch.zeros((), dtype=logp.dtype)
        for t in o:
            log_s = log_s + (logp[i, t] - old[i][t]) / len(o)
        s = torch.exp(log_s)
        stopped = (A > 0 and s.item() > 1 + EPS_HIGH) or (A < 0 and s.item() < 1 - EPS_LOW)
        bound = 1 + EPS_HIGH if A > 0 else 1 - EPS_LOW
        J = J + len(o) * A * (bound if stopped else s) / B
    return -J
