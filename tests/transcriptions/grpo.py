"""GRPO (Shao et al., DeepSeekMath, arXiv 2402.03300, equation 3, with equation 4's KL).

    J = 1/G sum_i 1/|o_i| sum_t { min[ rho A, clip(rho, 1-eps, 1+eps) A ] - beta D_KL[pi_theta || pi_ref] }
    D_KL = pi_ref/pi_theta - log(pi_ref/pi_theta) - 1                    (k3, differentiated as it stands)
    A_i  = ( r_i - mean(r) ) / std(r)                                    (outcome supervision, section 4.1.2)

Variant meant: eps .2, beta .04, sample standard deviation (ddof 1) plus 1e-4, a constant group gives exactly
0. 1/G and the mean over prompts make 1/B: a fully masked row is an empty response, it adds 0 and is counted.
"""

import math

import torch

EPS, BETA = 0.2, 0.04


def loss(*, logp, old_logp, mask, rewards, group_size, ref_logp=None, values=None, budget=None):
    B, T = logp.shape
    G = group_size
    m, r, pi_old, pi_ref = mask.tolist(), rewards.tolist(), old_logp.tolist(), ref_logp.tolist()

    J = torch.zeros((), dtype=logp.dtype)
    for q in range(B // G):
        group = r[q * G : (q + 1) * G]
        mean = sum(group) / G
        std = math.sqrt(sum((x - mean) ** 2 for x in group) / (G - 1))
        for i in range(q * G, (q + 1) * G):
            A = 0.0 if min(group) == max(group) else (r[i] - mean) / (std + 1e-4)
            o = [t for t in range(T) if m[i][t]]
            for t in o:
                rho = torch.exp(logp[i, t] - pi_old[i][t])
                if rho.item() < 1 - EPS:
                    clip = torch.tensor(1 - EPS, dtype=logp.dtype)
                elif rho.item() > 1 + EPS:
                    clip = torch.tensor(1 + EPS, dtype=logp.dtype)
                else:
                    clip = rho
                surrogate = clip * A if (clip * A).item() < (rho * A).item() else rho * A
                log_r = pi_ref[i][t] - logp[i, t]
                D_KL = torch.exp(log_r) - log_r - 1
                J = J + (surrogate - BETA * D_KL) / len(o) / B
    return -J
