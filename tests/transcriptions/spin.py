"""SPIN (Chen et al., arXiv 2401.01335): the objective of one iteration, with the logistic loss l(t) = log(1 + exp(-t)).

    L = E [ l( lambda log p_theta(y | x) / p_theta_t(y | x)  -  lambda log p_theta(y' | x) / p_theta_t(y' | x) ) ]

y comes from the data and y' from the opponent p_theta_t, the policy of the last iteration, which is the reference of
both: here y is called chosen, y' rejected and p_theta_t ref. lambda = 0.1. What the opponent says, and that it changes,
is the loop's part.
"""

import torch

LAMBDA = 0.1


def loss(
    *,
    chosen_logp,
    rejected_logp,
    chosen_mask,
    rejected_mask,
    ref_chosen_logp,
    ref_rejected_logp,
    chosen_scores=None,
    rejected_scores=None,
):
    n = chosen_logp.size(0)
    mean = 0.0
    for i in range(n):
        t = 0.0
        for sign, logp, opponent, mask in (
            (+1, chosen_logp[i], ref_chosen_logp[i], chosen_mask[i]),
            (-1, rejected_logp[i], ref_rejected_logp[i], rejected_mask[i]),
        ):
            for p, p_t, real in zip(logp, opponent, mask, strict=True):
                if real:
                    t = t + sign * LAMBDA * (p - p_t.detach())
        mean = mean + torch.log1p(torch.exp(-t)) / n
    return mean
