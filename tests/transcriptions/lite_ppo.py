"""Lite PPO (Liu et al., arXiv 2508.08221): group-level mean, batch-level standard deviation, token-level mean.

    J = 1/N sum_{i,t} min( rho A_i, clip(rho, 1-eps, 1+eps) A_i )
    A_i = ( R_i - mean(R of the prompt) ) / ( std(all R of the batch) + 1e-4 )

Variant meant: eps .2, the sample std of the raw rewards, N = all trained tokens, no KL.
"""

import math

import torch

EPS = 0.2


def loss(*, logp, old_logp, mask, rewards, group_size, ref_logp=None, values=None, budget=None):
    m, R, old = mask.tolist(), rewards.tolist(), old_logp.tolist()
    B = len(R)
    N = sum(1 for row in m for x in row if x)
    middle = sum(R) / B
    sigma = math.sqrt(sum((x - middle) ** 2 for x in R) / (B - 1))

    L = torch.zeros((), dtype=logp.dtype)
    for i in range(B):
        start = (i // group_size) * group_size
        siblings = R[start : start + group_size]
        if max(siblings) == min(siblings):
            continue
        A = (R[i] - sum(siblings) / group_size) / (sigma + 1e-4)
        for t, trained in enumerate(m[i]):
            if not trained:
                continue
            rho = torch.exp(logp[i, t] - old[i][t])
            if A > 0:
                gain = A * rho if rho.item() <= 1 + EPS else A * (1 + EPS)
            else:
                gain = A * rho if rho.item() >= 1 - EPS else A * (1 - EPS)
            L = L - gain / N
    return L
