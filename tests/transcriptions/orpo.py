"""ORPO (Hong et al., arXiv 2403.07691, eq. 4 to 7).

    odds(y | x) = P(y | x) / (1 - P(y | x)),   P(y | x) = exp( 1/|y| sum_t log pi_t )
    L_OR = -log sigma( log odds(y_w | x) / odds(y_l | x) )
    L = E [ L_SFT + lambda L_OR ],   L_SFT: the negative mean log-prob of the chosen response's tokens

lambda = 0.1. No reference policy.
"""

import torch

LAMBDA = 0.1


def mean_log_likelihood(logp, mask):
    kept = [logp[t] for t in range(len(mask)) if mask[t]]
    return sum(kept[1:], kept[0]) / len(kept)


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
    per_pair = []
    for i in range(len(chosen_logp)):
        w = mean_log_likelihood(chosen_logp[i], chosen_mask[i].tolist())
        P_w = torch.exp(w)
        P_l = torch.exp(mean_log_likelihood(rejected_logp[i], rejected_mask[i].tolist()))
        odds_ratio = (P_w / (1 - P_w)) / (P_l / (1 - P_l))
        L_OR = torch.log(1 + 1 / odds_ratio)
        per_pair.append(-w + LAMBDA * L_OR)
    return sum(per_pair[1:], per_pair[0]) / len(per_pair)
