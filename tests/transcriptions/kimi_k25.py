"""Kimi K2.5 (arXiv 2602.02276, policy optimisation; Kimi K3, arXiv 2607.24653, refers to it).

    J = 1/N sum_{i,t} [ clip( rho, alpha, beta ) A_i - tau ( log rho )^2 ]
    rho = pi_theta / pi_old,   A_i = R_i - mean(R)

Variant meant: outside (alpha, beta) = (.8, 1.28) a token's first term is dropped, whatever the sign of A_i; tau .01;
N = all trained tokens, dropped ones included. The report prints the three constants as symbols.
"""

import torch

ALPHA, BETA, TAU = 0.8, 1.28, 0.01


def loss(*, logp, old_logp, mask, rewards, group_size, ref_logp=None, values=None, budget=None):
    B, T = logp.shape
    m, r, old = mask.tolist(), rewards.tolist(), old_logp.tolist()

    J, N = torch.zeros((), dtype=logp.dtype), 0
    for i in range(B):
        g = i // group_size
        group = [r[j] for j in range(B) if j // group_size == g]
        A = 0.0 if min(group) == max(group) else r[i] - sum(group) / len(group)
        for t in range(T):
            if not m[i][t]:
                continue
            N += 1
            log_rho = logp[i, t] - old[i][t]
            rho = torch.exp(log_rho)
            if ALPHA < rho.item() < BETA:
                J = J + rho * A
            J = J - TAU * log_rho**2
    return -J / N
