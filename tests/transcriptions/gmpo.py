"""GMPO, geometric-mean policy optimisation (Zhao et al., arXiv 2507.20673, section 3).

    J = 1/G sum_i { prod_t min[ rho_t^s, clip(rho_t^s, e^-eps, e^eps) ]^s }^{1/|o_i|} A_i,    s = sgn(A_i)

Variant meant: the authors' setting (e^-0.4, e^0.4), so eps is .4 *in log space*; sample std + 1e-4; no KL.
Written in logs, the clip acts token by token *before* the mean and on one side only: a ceiling on log rho for
A > 0, a floor for A < 0. A = 0 contributes 0. The mean runs over responses.
"""

import math

import torch

EPS = 0.4


def loss(*, logp, old_logp, mask, rewards, group_size, ref_logp=None, values=None, budget=None):
    B, T = logp.shape
    G = group_size
    m, R, pi_old = mask.tolist(), rewards.tolist(), old_logp.tolist()

    J = torch.zeros((), dtype=logp.dtype)
    for q in range(B // G):
        group = R[q * G : (q + 1) * G]
        if all(value == group[0] for value in group):
            continue  # every A is 0
        mean = sum(group) / G
        std = math.sqrt(sum((value - mean) ** 2 for value in group) / (G - 1))
        for i in range(q * G, (q + 1) * G):
            A = (R[i] - mean) / (std + 1e-4)
            o = [t for t in range(T) if m[i][t]]
            if not o or A == 0:
                continue
            s = 1 if A > 0 else -1
            log_product = torch.zeros((), dtype=logp.dtype)
            for t in o:
                signed = s * (logp[i, t] - pi_old[i][t])  # log of rho^s
                if signed.item() > EPS:  # min with the clipped one
                    signed = torch.tensor(EPS, dtype=logp.dtype)
                log_product = log_product + s * signed
            J = J + torch.exp(log_product / len(o)) * A / B
    return -J
