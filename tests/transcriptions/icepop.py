"""IcePop (arXiv 2510.18855; GLM-5, arXiv 2602.15763, equation 1).

    J = 1/B sum_i 1/|o_i| sum_t pop_t min( rho A_i, clip(rho, 1-eps_l, 1+eps_h) A_i )
    pop_t = pop( pi_old_train / pi_infer, 1/beta, beta ),   pop(k, l, h) = k if l <= k <= h, else 0
    rho = pi_theta / pi_old_train,   A_i = ( R_i - mean(R) ) / ( std(R) + 1e-4 )

Variant meant: beta 2, eps .2/.28, no KL, the mean within each response and then over responses; a token that is popped
still counts in |o_i|. Sample std.
"""

import math

import torch

BETA, EPS_LOW, EPS_HIGH = 2.0, 0.2, 0.28


def pop(k):
    return k if 1 / BETA <= k <= BETA else 0.0


def loss(*, logp, old_logp, mask, rewards, group_size, ref_logp=None, values=None, budget=None, sampler_logp=None):
    B, T = logp.shape
    G = group_size
    m, r, train, infer = (x.tolist() for x in (mask, rewards, old_logp, sampler_logp))

    J = torch.zeros((), dtype=logp.dtype)
    for i in range(B):
        group = r[i // G * G : i // G * G + G]
        mean = sum(group) / G
        std = math.sqrt(sum((x - mean) ** 2 for x in group) / (G - 1))
        A = 0.0 if len(set(group)) == 1 else (r[i] - mean) / (std + 1e-4)
        o = [t for t in range(T) if m[i][t]]
        for t in o:
            rho = torch.exp(logp[i, t] - train[i][t])
            surrogate = torch.min(rho * A, rho.clamp(1 - EPS_LOW, 1 + EPS_HIGH) * A)
            J = J + pop(math.exp(train[i][t] - infer[i][t])) * surrogate / len(o) / B
    return -J
