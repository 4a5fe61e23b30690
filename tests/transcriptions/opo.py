"""OPO (Hao et al., arXiv 2505.23585): REINFORCE with a baseline that weighs each reward by its response's length.

    grad J = 1/B sum_i ( R_i - b ) sum_t grad log pi(o_t),   b = sum_j |o_j| R_j / sum_j |o_j|

The sums of b run over the responses of one prompt. Variant meant: tokens summed, no clip, no KL; |o_j| counts trained
tokens. The value returned has 1 in the place of log pi, whose gradient is the same with d log pi.
"""

import torch


def loss(*, logp, old_logp, mask, rewards, group_size, ref_logp=None, values=None, budget=None):
    B, T = logp.shape
    m, R = mask.tolist(), rewards.tolist()
    length = [sum(1 for x in row if x) for row in m]

    total = torch.zeros((), dtype=logp.dtype)
    for i in range(B):
        siblings = [j for j in range(B) if j // group_size == i // group_size]
        if all(R[j] == R[i] for j in siblings) or length[i] == 0:
            continue
        b = sum(length[j] * R[j] for j in siblings) / sum(length[j] for j in siblings)
        for t in range(T):
            if m[i][t]:
                total = total - (R[i] - b) * (1 + logp[i, t] - logp[i, t].item())
    return total / B
