"""IPO (Azar et al., arXiv 2310.12036, eq. 17 and algorithm 1).

    h_pi(y, y', x) = log( pi(y | x) pi_ref(y' | x) / ( pi(y' | x) pi_ref(y | x) ) )
    L = E [ ( h_pi(y_w, y_l, x) - tau^-1 / 2 )^2 ]

tau = 0.1. Variant meant: the paper's, with the log-likelihood of whole responses; TRL divides each log-ratio by the
length of its response, which is another number.
"""

import torch

TAU = 0.1


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
    losses = []
    for i in range(chosen_logp.shape[0]):
        h = 0.0
        for t in range(chosen_logp.shape[1]):
            if chosen_mask[i, t].item() == 1:
                h = h + chosen_logp[i, t] - ref_chosen_logp[i, t].item()
        for t in range(rejected_logp.shape[1]):
            if rejected_mask[i, t].item() == 1:
                h = h - rejected_logp[i, t] + ref_rejected_logp[i, t].item()
        losses.append((h - 1 / TAU / 2) ** 2)
    return torch.stack(losses).sum() / len(losses)
