"""SimPO (Meng et al., arXiv 2405.14734, eq. 6).

    L = -E [ log sigma( beta/|y_w| log pi(y_w | x)  -  beta/|y_l| log pi(y_l | x)  -  gamma ) ]

beta = 2, gamma = 1. No reference policy.
"""

import torch

BETA, GAMMA = 2.0, 1.0


def length_normalised(logp, mask):
    total, count = 0.0, 0
    for t in range(len(mask)):
        if mask[t]:
            total, count = total + logp[t], count + 1
    return total / count


def loss(
    *,
    chosen_logp,
    rejected_logp,
    chosen_mask,
    rejected_mask,
    ref_chosen_logp=None,
    ref_rejected_logp=None,
    chosen_scores=None,
    rejected_scores=None,
):
    L = torch.zeros((), dtype=chosen_logp.dtype)
    for i in range(len(chosen_logp)):
        w = BETA * length_normalised(chosen_logp[i], chosen_mask[i].tolist())
        l = BETA * length_normalised(rejected_logp[i], rejected_mask[i].tolist())  # noqa: E741
        L = L + torch.log1p(torch.exp(-(w - l - GAMMA)))
    return L / len(chosen_logp)
