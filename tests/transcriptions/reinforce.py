"""REINFORCE (Williams 1992; Sutton et al. 2000) on the tokens of a response, reward-to-go, no baseline.

    grad J(theta) = E[ sum_t G_t grad log pi_theta(o_t | q, o_<t) ],     G_t = sum_{l >= t} r_l

The reward r(q, o) is paid on the last trained token, so G_t is that reward at every trained token. Variant
meant: one update per sample, no ratio, no clip; a response counts by the *sum* over its tokens, the batch by
its mean. Value of the surrogate: REINFORCE prescribes a gradient, not a loss. Written with the ratio pi /
sg[pi], whose value is 1 and whose gradient is grad log pi, the surrogate's value is -(1/B) sum_i sum_t G_t.
"""

import torch


def loss(*, logp, old_logp, mask, rewards, group_size, ref_logp=None, values=None, budget=None):
    B, T = logp.shape
    r = rewards.tolist()
    m = mask.tolist()

    J = torch.zeros((), dtype=logp.dtype)
    for i in range(B):
        o = [t for t in range(T) if m[i][t]]
        r_t = dict.fromkeys(o, 0.0)
        if o:
            r_t[o[-1]] = r[i]
        for t in o:
            G_t = 0.0
            for s in o:
                if s >= t:
                    G_t += r_t[s]
            ratio = torch.exp(logp[i, t] - logp[i, t].detach())
            J = J + ratio * G_t / B
    return -J
