"""REINFORCE++ (Hu et al., arXiv 2501.03262, section 3: token-level KL reward, global normalisation).

    A_t    = r(q, o) - beta sum_{i >= t} KL(i),      KL(t) = log pi_old(o_t | q, o_<t) / pi_ref(o_t | q, o_<t)
    A_norm = (A_t - mean_batch A) / std_batch A
    L      = clipped surrogate of PPO with A_norm

Variant meant: the plain one (no group baseline), k1 in the reward with beta .01, gamma 1, eps .2. Mean and
std run over all trained *tokens* of the batch, so a long response weighs more (OpenRLHF and verl both do
this); sample variance with 1e-8 under the root, as verl. Averaged per response, then over responses. One
trained token in the whole batch has no sample variance: that is an error, not a number.
"""

import math

import torch

BETA, EPS = 0.01, 0.2


def loss(*, logp, old_logp, mask, rewards, group_size, ref_logp=None, values=None, budget=None):
    B, T = logp.shape
    m, r, pi_old, pi_ref = mask.tolist(), rewards.tolist(), old_logp.tolist(), ref_logp.tolist()

    A = []  # one dict a response: token -> advantage
    for i in range(B):
        o = [t for t in range(T) if m[i][t]]
        A.append({})
        for t in o:
            KL_to_go = 0.0
            for s in o:
                if s >= t:
                    KL_to_go += pi_old[i][s] - pi_ref[i][s]
            A[i][t] = r[i] - BETA * KL_to_go

    tokens = [a for response in A for a in response.values()]
    mean = sum(tokens) / len(tokens)
    if len(tokens) == 1:
        raise ValueError("one token cannot be normalised")
    variance = sum((a - mean) ** 2 for a in tokens) / (len(tokens) - 1)
    std = math.sqrt(variance + 1e-8)

    J = torch.zeros((), dtype=logp.dtype)
    for i in range(B):
        length = len(A[i])
        for t, a in A[i].items():
            A_norm = (a - mean) / std
            ratio = torch.exp(logp[i, t] - pi_old[i][t])
            value = ratio.item()
            # The minimum takes the constant branch exactly where moving further would pay more.
            if A_norm > 0 and value > 1 + EPS:
                term = torch.tensor((1 + EPS) * A_norm, dtype=logp.dtype)
            elif A_norm < 0 and value < 1 - EPS:
                term = torch.tensor((1 - EPS) * A_norm, dtype=logp.dtype)
            else:
                term = ratio * A_norm
            J = J + term / length / B
    return -J
