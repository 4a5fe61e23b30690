"""SAPO, soft adaptive policy optimisation (arXiv 2511.20347).

    J       = 1/G sum_i 1/|o_i| sum_t f(rho_t) A_i
    f(rho)  = 4/tau * sigmoid( tau (rho - 1) ),        tau = tau_pos if A_i > 0 else tau_neg

Variant meant: tau_pos 1, tau_neg 1.05; sample std + 1e-4; no KL. 4/tau makes f'(1) = 1. The gate is
differentiated, so the weight on rho A is 4 sigma (1 - sigma), which falls on both sides of 1.
"""

import math

import torch

TAU_POS, TAU_NEG = 1.0, 1.05


def loss(*, logp, old_logp, mask, rewards, group_size, ref_logp=None, values=None, budget=None):
    B, T = logp.shape
    G = group_size
    m, R, pi_old = mask.tolist(), rewards.tolist(), old_logp.tolist()

    J = torch.zeros((), dtype=logp.dtype)
    for q in range(B // G):
        group = R[q * G : (q + 1) * G]
        mean = sum(group) / G
        std = math.sqrt(sum((value - mean) ** 2 for value in group) / (G - 1))
        for i in range(q * G, (q + 1) * G):
            A = 0.0 if group.count(group[0]) == G else (R[i] - mean) / (std + 1e-4)
            tau = TAU_POS if A > 0 else TAU_NEG
            o = [t for t in range(T) if m[i][t]]
            for t in o:
                rho = torch.exp(logp[i, t] - pi_old[i][t])
                sigma = 1 / (1 + torch.exp(-tau * (rho - 1)))
                J = J + 4 / tau * sigma * A / len(o) / B
    return -J
