"""The reward model of InstructGPT (Ouyang et al., arXiv 2203.02155, eq. 1; Bradley and Terry 1952).

    loss(theta) = - 1 / (K choose 2) E [ log sigma( r_theta(x, y_w) - r_theta(x, y_l) ) ]

Here with one comparison a prompt (K = 2), so the factor is 1. sigma(d) = exp(r_w) / (exp(r_w) + exp(r_l)), which is how
Bradley and Terry write it: the log of a share of two.
"""

import torch


def loss(
    *,
    chosen_scores,
    rejected_scores,
    chosen_logp=None,
    rejected_logp=None,
    chosen_mask=None,
    rejected_mask=None,
    ref_chosen_logp=None,
    ref_rejected_logp=None,
):
    total = torch.zeros((), dtype=chosen_scores.dtype)
    for r_w, r_l in zip(chosen_scores, rejected_scores, strict=True):
        top = torch.maximum(r_w, r_l).detach()  # subtracted from both: a share does not change, exp does not overflow
        both = torch.exp(r_w - top) + torch.exp(r_l - top)
        total = total - ((r_w - top) - torch.log(both))
    return total / len(chosen_scores)
