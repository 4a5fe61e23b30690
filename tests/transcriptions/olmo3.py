"""Olmo 3 (Team Olmo, arXiv 2512.13961): a token mean of the clipped surrogate, weighed by a truncated sampler ratio.

    J = 1/N sum_{i,t} min( pi_old / pi_sampler, 2 ) min( rho A_i, clip(rho, 1-eps_l, 1+eps_h) A_i )
    A_i = R_i - mean(R)

Variant meant: eps .2/.272, no KL, N = all trained tokens. The filter of prompts with one outcome chooses what enters
the batch and is no part of the loss.
"""

import math

import torch

CAP, LOW, HIGH = 2.0, 1 - 0.2, 1 + 0.272


def loss(*, logp, old_logp, mask, rewards, group_size, ref_logp=None, values=None, budget=None, sampler_logp=None):
    B, T = logp.shape
    m, r, train, engine = (x.tolist() for x in (mask, rewards, old_logp, sampler_logp))
    tokens = [(i, t) for i in range(B) for t in range(T) if m[i][t]]

    J = torch.zeros((), dtype=logp.dtype)
    for i, t in tokens:
        group = r[i - i % group_size :][:group_size]
        A = 0.0 if len(set(group)) == 1 else r[i] - sum(group) / group_size
        rho = torch.exp(logp[i, t] - train[i][t])
        inside = torch.clamp(rho, LOW, HIGH)
        truncated = min(math.exp(train[i][t] - engine[i][t]), CAP)
        J = J + truncated * torch.minimum(A * rho, A * inside)
    return -J / len(tokens)
