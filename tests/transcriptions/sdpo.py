"""SDPO (arXiv 2601.20802) at sampled tokens: the policy that has read feedback pays the tokens of the one that has not.

    L = -1/B sum_i 1/|o_i| sum_t sg[ min(rho, 2) ] A log pi_theta(o_t),   A = log pi_T(o_t) - log pi_old(o_t)

Variant meant: the gap is that of the policy which sampled; the ratio is capped at 2 as in TRL; a mean over each
completion, then over completions. Value of the surrogate: -sum min(rho, 2) A, which is what the gradient-equal form
sg[min(rho, 2) / rho] rho A has. The teacher's log-probs come where a reference's would.
"""

import math

import torch

CAP = 2.0


def loss(*, logp, old_logp, mask, rewards, group_size, ref_logp=None, values=None, budget=None):
    B, T = logp.shape
    m, old, teacher, now = mask.tolist(), old_logp.tolist(), ref_logp.tolist(), logp.tolist()

    L = torch.zeros((), dtype=logp.dtype)
    for i in range(B):
        n = sum(1 for t in range(T) if m[i][t])
        for t in range(T):
            if m[i][t]:
                weight = min(math.exp(now[i][t] - old[i][t]), CAP)  # a plain number: the stop-gradient
                score = logp[i, t] - now[i][t]  # value 0, gradient that of log pi
                L = L - weight * (teacher[i][t] - old[i][t]) * (1 + score) / (n * B)
    return L
