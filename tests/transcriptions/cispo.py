"""CISPO (MiniMax-M1, arXiv 2506.13585, equations 4 and 5).

    J     = 1/(sum_i |o_i|) sum_i sum_t sg[ r_hat ] A_i log pi_theta(o_t)
    r_hat = clip( r, 1 - eps_low^IS, 1 + eps_high^IS )

Variant meant: no lower bound (the paper switches it off), the upper bound as an absolute cap of 5 on the
weight; tokens of the whole batch in the denominator (the paper: of the group); A the group z-score, sample
std + 1e-4; no KL. No token's gradient is ever dropped, its weight is bounded. Value of the surrogate: -sum
r_hat A / N, which is what the gradient-equal form sg[r_hat / r] * r * A has; the paper's own value, with log
pi in it, carries no meaning either.
"""

import math

import torch

CAP = 5.0


def loss(*, logp, old_logp, mask, rewards, group_size, ref_logp=None, values=None, budget=None):
    B, T = logp.shape
    G = group_size
    m, R, pi_old, pi = mask.tolist(), rewards.tolist(), old_logp.tolist(), logp.tolist()

    N = 0
    J = torch.zeros((), dtype=logp.dtype)
    for i in range(B):
        group = R[(i // G) * G : (i // G) * G + G]
        mean = sum(group) / G
        std = math.sqrt(sum((value - mean) ** 2 for value in group) / (G - 1))
        A = (R[i] - mean) / (std + 1e-4) if len(set(group)) > 1 else 0.0
        for t in range(T):
            if m[i][t]:
                N += 1
                r_hat = min(math.exp(pi[i][t] - pi_old[i][t]), CAP)  # a plain number: the stop-gradient
                score = logp[i, t] - pi[i][t]  # value 0, gradient that of log pi
                J = J + r_hat * A * (1 + score)
    return -J / N
