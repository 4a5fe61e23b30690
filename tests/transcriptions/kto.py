"""KTO (Ethayarajh et al., arXiv 2402.01306, eq. 8), on data of which one half is wanted and the other not.

    r(x, y) = log pi(y | x) / pi_ref(y | x)
    v(x, y) = lambda_D sigma(beta (r - z0))   if y is wanted
              lambda_U sigma(beta (z0 - r))   if it is not
    L = E_(x, y) [ lambda_y - v(x, y) ]

z0 is an estimate of KL(pi || pi_ref), common to the batch and not differentiated through. beta = 0.1, both lambdas 1.
The expectation is over completions: two of them in a pair.
"""

import math

import torch

BETA = 0.1
LAMBDA_D = LAMBDA_U = 1.0


def implied_reward(logp, ref, mask):
    r = torch.zeros((), dtype=logp.dtype)
    for t in range(len(mask)):
        if mask[t]:
            r = r + logp[t] - ref[t].detach()
    return r


def loss(
    *,
    chosen_logp,
    rejected_logp,
    chosen_mask,
    rejected_mask,
    ref_chosen_logp,
    ref_rejected_logp,
    anchor,
    chosen_scores=None,
    rejected_scores=None,
):
    completions = 2 * len(chosen_logp)
    L = torch.zeros((), dtype=chosen_logp.dtype)
    for i in range(len(chosen_logp)):
        z0 = float(anchor[i])
        r = implied_reward(chosen_logp[i], ref_chosen_logp[i], chosen_mask[i].tolist())
        L = L + (LAMBDA_D - LAMBDA_D / (1 + torch.exp(-BETA * (r - z0)))) / completions
        r = implied_reward(rejected_logp[i], ref_rejected_logp[i], rejected_mask[i].tolist())
        L = L + (LAMBDA_U - LAMBDA_U / (1 + math.exp(-BETA * z0) * torch.exp(BETA * r))) / completions
    return L
