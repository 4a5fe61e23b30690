"""GDPO (Liu et al., arXiv 2601.05242), as verl computes it.

    a_i = sum_k ( R_ik - mean_k ) / ( std_k + 1e-6 )        within the group, each part k of the reward
    A_it = ( a_i - mean ) / sqrt( var + 1e-8 )              over the trained tokens of the batch
    J = 1/N sum_{i,t} min( rho A_it, clip(rho, 1-eps, 1+eps) A_it )

Variant meant: all parts with weight 1, eps .2, sample variances.
"""

import math

import torch

EPS = 0.2


def loss(*, logp, old_logp, mask, rewards, group_size, ref_logp=None, values=None, budget=None, reward_parts=None):
    B, T = logp.shape
    G = group_size
    m, parts, old = mask.tolist(), reward_parts.tolist(), old_logp.tolist()
    K = len(parts[0])

    a = [0.0] * B
    for i in range(B):
        for k in range(K):
            group = [parts[j][k] for j in range(i // G * G, i // G * G + G)]
            mean = sum(group) / G
            std = math.sqrt(sum((x - mean) ** 2 for x in group) / (G - 1))
            if max(group) != min(group):
                a[i] += (parts[i][k] - mean) / (std + 1e-6)

    trained = [(i, t) for i in range(B) for t in range(T) if m[i][t]]
    N = len(trained)
    if N < 2:
        raise ValueError("one token has no sample variance")
    mean = sum(a[i] for i, _ in trained) / N
    var = sum((a[i] - mean) ** 2 for i, _ in trained) / (N - 1)
    L = torch.zeros((), dtype=logp.dtype)
    for i, t in trained:
        A = (a[i] - mean) / math.sqrt(var + 1e-8)
        rho = torch.exp(logp[i, t] - old[i][t])
        one, two = rho * A, rho.clamp(1 - EPS, 1 + EPS) * A
        L = L - (one if one.item() <= two.item() else two) / N
    return L
