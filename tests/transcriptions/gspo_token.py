"""GSPO-token (Zheng et al., arXiv 2507.18071, equations 13 and 14).

    J      = 1/G sum_i 1/|y_i| sum_t min( s_it A_it, clip(s_it, 1-eps_left, 1+eps_right) A_it )
    s_it   = sg[s_i] * pi_theta(y_it) / sg[ pi_theta(y_it) ],    s_i the geometric-mean ratio of equation 7

Each token has the value of the whole response's ratio and the gradient of its own log-prob. Here A_it = A_i,
so value and gradient equal GSPO's. Clip range 3e-4 / 4e-4, no KL, sample std + 1e-4.
"""

import math

import torch

EPS_LEFT, EPS_RIGHT = 3e-4, 4e-4
SAME_GRADIENT_AS = ("gspo",)  # for one advantage a response, a theorem


def loss(*, logp, old_logp, mask, rewards, group_size, ref_logp=None, values=None, budget=None):
    B, T = logp.shape
    G = group_size
    m, r, pi_old, pi = mask.tolist(), rewards.tolist(), old_logp.tolist(), logp.tolist()

    J = torch.zeros((), dtype=logp.dtype)
    for i in range(B):
        y = [t for t in range(T) if m[i][t]]
        if not y:
            continue
        group = r[i - i % G : i - i % G + G]
        mean = sum(group) / G
        std = math.sqrt(sum((v - mean) ** 2 for v in group) / (G - 1))
        A = 0.0 if max(group) == min(group) else (r[i] - mean) / (std + 1e-4)

        sg_s = math.exp(sum(pi[i][t] - pi_old[i][t] for t in y) / len(y))  # a plain number: the stop-gradient
        for t in y:
            s_t = sg_s * torch.exp(logp[i, t] - pi[i][t])
            too_high = A > 0 and s_t.item() > 1 + EPS_RIGHT
            too_low = A < 0 and s_t.item() < 1 - EPS_LEFT
            if too_high:
                term = torch.tensor((1 + EPS_RIGHT) * A, dtype=logp.dtype)
            elif too_low:
                term = torch.tensor((1 - EPS_LEFT) * A, dtype=logp.dtype)
            else:
                term = s_t * A
            J = J + term / len(y) / B
    return -J
