"""The best of k (Tang et al., arXiv 2503.19595), as verl's grpo_passk divides it.

    grad J = 1/B sum_i A_i sum_t grad log pi(o_t)
    A_i = ( max(R of the prompt) - max(R of the prompt without i) ) / ( std(R of the prompt) + 1e-6 )

Variant meant: sample std, tokens summed, no clip, no KL. The value returned has 1 in the place of log pi, whose
gradient is the same with d log pi.
"""

import math

import torch


def loss(*, logp, old_logp, mask, rewards, group_size, ref_logp=None, values=None, budget=None):
    B, T = logp.shape
    m, R = mask.tolist(), rewards.tolist()

    J = torch.zeros((), dtype=logp.dtype)
    for i in range(B):
        first = i - i % group_size
        everyone = R[first : first + group_size]
        others = [R[j] for j in range(first, first + group_size) if j != i]
        mean = sum(everyone) / group_size
        std = math.sqrt(sum((x - mean) ** 2 for x in everyone) / (group_size - 1))
        A = (max(everyone) - max(others)) / (std + 1e-6)
        for t in range(T):
            if m[i][t]:
                J = J + A * (1 + logp[i, t] - logp[i, t].item()) / B
    return -J
