"""DRO (Richemond et al., arXiv 2405.19107), online and token by token, as verl and others compute it.

    L = -1/N sum_{i,t} [ A_i log pi_theta(o_t) - beta/2 ( log pi_theta(o_t) - log pi_old(o_t) )^2 ]
    A_i = R_i - mean(R)

Variant meant: beta .1, the group's mean in the value's place, N = all trained tokens. The value returned has 1 in the
place of log pi in the first term, whose gradient is the same with d log pi.
"""

import torch

BETA = 0.1


def loss(*, logp, old_logp, mask, rewards, group_size, ref_logp=None, values=None, budget=None):
    B, T = logp.shape
    m, r, old = mask.tolist(), rewards.tolist(), old_logp.tolist()
    N = sum(bool(m[i][t]) for i in range(B) for t in range(T))

    total = torch.zeros((), dtype=logp.dtype)
    for p in range(0, B, group_size):
        group = r[p : p + group_size]
        equal = all(x == group[0] for x in group)
        for i in range(p, p + group_size):
            A = 0.0 if equal else r[i] - sum(group) / group_size
            for t in range(T):
                if m[i][t]:
                    log_pi = logp[i, t]
                    reinforce = A * (1 + log_pi - log_pi.item())
                    spring = BETA / 2 * (log_pi - old[i][t]) ** 2
                    total = total + reinforce - spring
    return -total / N
