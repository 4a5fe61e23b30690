"""ReMax (Li et al., arXiv 2310.10505, algorithm 1): the greedy response's reward is the baseline.

    J = 1/B sum_i sum_t ( R_i - R_greedy ) log pi(o_t)

Variant meant: no KL. `greedy_rewards` holds a number for each row, the same for the rows of a prompt. The value
returned has 1 in the place of log pi, whose gradient is the same with d log pi.
"""

import torch


def loss(*, logp, old_logp, mask, rewards, group_size, ref_logp=None, values=None, budget=None, greedy_rewards=None):
    m, r, g = mask.tolist(), rewards.tolist(), greedy_rewards.tolist()
    J = torch.zeros((), dtype=logp.dtype)
    for i, row in enumerate(m):
        for t, trained in enumerate(row):
            if trained:
                J = J + (r[i] - g[i]) * (1 + logp[i, t] - logp[i, t].item()) / len(m)
    return -J
