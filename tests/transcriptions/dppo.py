"""DPPO with the total-variation mask (arXiv 2602.04879), as prime-rl's default loss writes it.

    L = -1/N sum_{i,t} [ M_t rho_t A_i - tau ( log rho_t )^2 ],   rho = pi_theta / pi_old,   A_i = R_i - mean(R)
    M_t = 0 if A_i > 0 and pi_theta - pi_old > delta, or A_i < 0 and pi_theta - pi_old < -delta; else 1

Variant meant: delta .2, tau .001. N = all trained tokens of the batch, masked ones included; M is a constant and does
not act on the second term.
"""

import math

import torch

DELTA, TAU = 0.2, 0.001


def loss(*, logp, old_logp, mask, rewards, group_size, ref_logp=None, values=None, budget=None):
    B, T = logp.shape
    m, r, old = mask.tolist(), rewards.tolist(), old_logp.tolist()
    N = sum(1 for i in range(B) for t in range(T) if m[i][t])

    L = torch.zeros((), dtype=logp.dtype)
    for i in range(B):
        first = i - i % group_size
        group = r[first : first + group_size]
        A = 0.0 if max(group) == min(group) else r[i] - sum(group) / group_size
        for t in range(T):
            if not m[i][t]:
                continue
            log_rho = logp[i, t] - old[i][t]
            change = math.exp(logp[i, t].item()) - math.exp(old[i][t])
            too_far = (A > 0 and change > DELTA) or (A < 0 and change < -DELTA)
            if not too_far:
                L = L - torch.exp(log_rho) * A / N
            L = L + TAU * log_rho**2 / N
    return L
