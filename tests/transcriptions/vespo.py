"""VESPO (Shen et al., arXiv 2602.10693), as TRL computes it.

    J = 1/N sum_{i,t} sg[ phi(W_i) ] A_i log pi(o_t),   W_i = prod_t pi / pi_old,   phi(W) = W^k exp( lambda (1 - W) )
    k, lambda = 2, 3 where A_i >= 0;   3, 2 where A_i < 0;   A_i = ( R_i - mean(R) ) / ( std(R) + 1e-4 )

Variant meant: the mean over all trained tokens; no KL. The value returned has 1 in the place of log pi, whose gradient
is the same with d log pi.
"""

import math

import torch


def loss(*, logp, old_logp, mask, rewards, group_size, ref_logp=None, values=None, budget=None):
    B, T = logp.shape
    G = group_size
    m, r, old, new = mask.tolist(), rewards.tolist(), old_logp.tolist(), logp.detach().tolist()
    N = sum(1 for row in m for x in row if x)

    L = torch.zeros((), dtype=logp.dtype)
    for i in range(B):
        group = r[i // G * G : i // G * G + G]
        mean = sum(group) / G
        std = math.sqrt(sum((x - mean) ** 2 for x in group) / (G - 1))
        A = 0.0 if max(group) == min(group) else (r[i] - mean) / (std + 1e-4)
        k, lam = (2, 3) if A >= 0 else (3, 2)
        log_W = sum(new[i][t] - old[i][t] for t in range(T) if m[i][t])
        phi = math.exp(k * log_W + lam * (1 - math.exp(log_W)))
        for t in range(T):
            if m[i][t]:
                L = L - phi * A * (1 + logp[i, t] - new[i][t]) / N
    return L
