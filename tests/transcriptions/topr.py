"""TOPR (Le Roux et al., arXiv 2503.14286), with the ratio of each token, as Trinity-RFT computes it.

    J = 1/B sum_i sum_t [ A_i > 0 ] A_i log pi(o_t) + [ A_i <= 0 ] sg[ min( pi / pi_old, 1 ) ] A_i log pi(o_t)

Variant meant: A_i = R_i - mean(R), tokens summed. The value returned has 1 in the place of log pi, whose gradient is
the same with d log pi.
"""

import math

import torch


def loss(*, logp, old_logp, mask, rewards, group_size, ref_logp=None, values=None, budget=None):
    B, T = logp.shape
    m, r, old = mask.tolist(), rewards.tolist(), old_logp.tolist()

    J = torch.zeros((), dtype=logp.dtype)
    for q in range(B // group_size):
        rows = range(q * group_size, (q + 1) * group_size)
        b = sum(r[i] for i in rows) / group_size
        for i in rows:
            A = 0.0 if all(r[j] == r[i] for j in rows) else r[i] - b
            for t in range(T):
                if m[i][t]:
                    taper = 1.0 if A > 0 else min(math.exp(logp[i, t].item() - old[i][t]), 1.0)
                    J = J + taper * A * (1 + logp[i, t] - logp[i, t].item()) / B
    return -J
