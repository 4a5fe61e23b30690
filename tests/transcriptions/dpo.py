"""DPO (Rafailov et al., arXiv 2305.18290, eq. 7).

    L = -E [ log sigma( beta log pi(y_w | x) / pi_ref(y_w | x)  -  beta log pi(y_l | x) / pi_ref(y_l | x) ) ]

beta = 0.1. log pi(y | x) is the sum over the response's tokens, its end token included.
"""

import torch

BETA = 0.1


def log_likelihood(logp, mask):
    total = torch.zeros((), dtype=logp.dtype)
    for t in range(len(mask)):
        if mask[t]:
            total = total + logp[t]
    return total


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
    B = len(chosen_logp)
    L = torch.zeros((), dtype=chosen_logp.dtype)
    for i in range(B):
        pi_w = log_likelihood(chosen_logp[i], chosen_mask[i].tolist())
        pi_l = log_likelihood(rejected_logp[i], rejected_mask[i].tolist())
        ref_w = log_likelihood(ref_chosen_logp[i].detach(), chosen_mask[i].tolist())
        ref_l = log_likelihood(ref_rejected_logp[i].detach(), rejected_mask[i].tolist())
        reward_w, reward_l = BETA * (pi_w - ref_w), BETA * (pi_l - ref_l)  # the implicit rewards, eq. 5 without log Z
        L = L - torch.log(torch.sigmoid(reward_w - reward_l)) / B
    return L
