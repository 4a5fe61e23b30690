"""DAPO (Yu et al., arXiv 2503.14476, equation 8; soft overlong punishment, equation 13).

    J   = 1/(sum_i |o_i|) sum_i sum_t min[ rho A_i, clip(rho, 1-eps_low, 1+eps_high) A_i ]
    A_i = ( R_i - mean(R) ) / std(R)

    R_length(y) =  0                                   |y| <= L_max - L_cache
                   ((L_max - L_cache) - |y|)/L_cache   L_max - L_cache < |y| <= L_max
                  -1                                   L_max < |y|

Variant meant: eps .2/.28, no KL; R = correctness + R_length, before the group statistics; L_max is the
generation budget, L_cache a fifth of it (the paper: 4096 of 20480), |y| the number of trained tokens. The
paper puts 1/sum|o_i| inside the expectation over prompts, so per group; every library divides by the tokens
of the whole batch, and so does this. Sample std, +1e-4. Dynamic sampling (equation 11) chooses what enters
the batch and is no part of the loss.
"""

import math

import torch

EPS_LOW, EPS_HIGH = 0.2, 0.28


def loss(*, logp, old_logp, mask, rewards, group_size, ref_logp=None, values=None, budget=None):
    B, T = logp.shape
    G = group_size
    m, r, pi_old = mask.tolist(), rewards.tolist(), old_logp.tolist()
    L_max = budget
    L_cache = L_max / 5

    length = [sum(1 for t in range(T) if m[i][t]) for i in range(B)]
    R = []
    for i in range(B):
        if length[i] <= L_max - L_cache:
            R_length = 0.0
        elif length[i] <= L_max:
            R_length = ((L_max - L_cache) - length[i]) / L_cache
        else:
            R_length = -1.0
        R.append(r[i] + R_length)

    N = sum(length)
    J = torch.zeros((), dtype=logp.dtype)
    for q in range(B // G):
        group = R[q * G : (q + 1) * G]
        mean = sum(group) / G
        std = math.sqrt(sum((x - mean) ** 2 for x in group) / (G - 1))
        for i in range(q * G, (q + 1) * G):
            A = 0.0 if max(group) == min(group) else (R[i] - mean) / (std + 1e-4)
            for t in range(T):
                if m[i][t]:
                    rho = torch.exp(logp[i, t] - pi_old[i][t])
                    if A >= 0:  # min() means: a ceiling for what pays ...
                        term = A * rho.clamp(max=1 + EPS_HIGH)
                    else:  # ... and a floor for what costs
                        term = A * rho.clamp(min=1 - EPS_LOW)
                    J = J + term / N
    return -J
