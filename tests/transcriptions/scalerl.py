"""ScaleRL (Khatri et al., arXiv 2510.13786): CISPO's weight, batch-level standard deviation, prompt-level mean.

    J = 1/P sum_p 1/( sum_{i in p} |o_i| ) sum_{i in p} sum_t sg[ min(rho, cap) ] A_i log pi_theta(o_t)
    A_i = ( R_i - mean(R of the prompt) ) / ( std(all R of the batch) + 1e-4 )

Variant meant: cap 5, sample std. The value returned is that of sg[min(rho, cap) / rho] rho A, which has the same
gradient: d rho = rho d log pi. A prompt without a trained token adds nothing and counts in P. The filter of prompts
with one outcome chooses what enters the batch and is no part of the loss.
"""

import math

import torch

CAP = 5.0


def loss(*, logp, old_logp, mask, rewards, group_size, ref_logp=None, values=None, budget=None):
    B, T = logp.shape
    P = B // group_size
    m, r, old = mask.tolist(), rewards.tolist(), old_logp.tolist()
    overall = sum(r) / B
    std = math.sqrt(sum((x - overall) ** 2 for x in r) / (B - 1))

    J = torch.zeros((), dtype=logp.dtype)
    for p in range(P):
        rows = list(range(p * group_size, (p + 1) * group_size))
        mean = sum(r[i] for i in rows) / group_size
        dead = len({r[i] for i in rows}) == 1
        tokens = [(i, t) for i in rows for t in range(T) if m[i][t]]
        for i, t in tokens:
            A = 0.0 if dead else (r[i] - mean) / (std + 1e-4)
            rho = torch.exp(logp[i, t] - old[i][t])
            weight = min(rho.item(), CAP) / rho.item()
            J = J + weight * rho * A / len(tokens) / P
    return -J
