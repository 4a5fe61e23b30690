"""On-policy distillation as a policy gradient (Lu, Thinking Machines, 2025): the teacher pays each sampled token.

    L = -1/N sum_{i,t} rho_t [ log pi_T(o_t) - log pi_old(o_t) ],   rho = pi_theta / pi_old

Variant meant: no clip, no outcome reward, a discount of 0; the gap is that of the policy which sampled. The teacher's
log-probs come where a reference's would.
"""

import torch


def loss(*, logp, old_logp, mask, rewards, group_size, ref_logp=None, values=None, budget=None):
    B, T = logp.shape
    m, old, teacher = mask.tolist(), old_logp.tolist(), ref_logp.tolist()
    N = sum(1 for i in range(B) for t in range(T) if m[i][t])

    L = torch.zeros((), dtype=logp.dtype)
    for i in range(B):
        for t in range(T):
            if m[i][t]:
                L = L - torch.exp(logp[i, t] - old[i][t]) * (teacher[i][t] - old[i][t]) / N
    return L
