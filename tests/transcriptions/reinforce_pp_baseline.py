"""REINFORCE++-baseline (Hu et al., arXiv 2501.03262, section on the variant with a group baseline).

    a_i     = R_i - mean(R of the prompt)                      the same on every token of response i
    A_{i,t} = ( a_i - mean(a) ) / sqrt( var(a) + 1e-8 )        mean and variance over all trained tokens of the batch
    L       = -1/N sum_{i,t} min( rho A, clip(rho, 1-eps, 1+eps) A ) + beta/N sum_{i,t} (log pi - log pi_ref)^2 / 2

Variant meant: eps .2, beta .001, sample variance (ddof 1), N = all trained tokens. The paper leaves the form of the KL
open; this is verl's `mse` in the loss. One trained token has no sample variance: that is an error.
"""

import math

import torch

EPS, BETA = 0.2, 0.001


def loss(*, logp, old_logp, mask, rewards, group_size, ref_logp=None, values=None, budget=None):
    B, T = logp.shape
    m, R, pi_old, pi_ref = (x.tolist() for x in (mask, rewards, old_logp, ref_logp))

    centred = []
    for i in range(B):
        siblings = R[i - i % group_size : i - i % group_size + group_size]
        equal = min(siblings) == max(siblings)
        centred.append(0.0 if equal else R[i] - sum(siblings) / group_size)

    tokens = [(i, t) for i in range(B) for t in range(T) if m[i][t]]
    N = len(tokens)
    if N == 1:
        raise ValueError("one token cannot be whitened")
    mean = sum(centred[i] for i, _ in tokens) / N
    variance = sum((centred[i] - mean) ** 2 for i, _ in tokens) / (N - 1)

    L = torch.zeros((), dtype=logp.dtype)
    for i, t in tokens:
        A = (centred[i] - mean) / math.sqrt(variance + 1e-8)
        rho = torch.exp(logp[i, t] - pi_old[i][t])
        if (A > 0 and rho.item() > 1 + EPS) or (A < 0 and rho.item() < 1 - EPS):
            gain = torch.tensor(A * (1 + EPS if A > 0 else 1 - EPS), dtype=logp.dtype)
        else:
            gain = A * rho
        L = L - gain / N + BETA * 0.5 * (logp[i, t] - pi_ref[i][t]) ** 2 / N
    return L
