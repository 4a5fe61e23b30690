"""GSPO (Zheng et al., arXiv 2507.18071, equations 5 to 7).

    J   = 1/G sum_i min( s_i A_i, clip(s_i, 1-eps_left, 1+eps_right) A_i )
    s_i = ( pi_theta(y_i | x) / pi_old(y_i | x) )^{1/|y_i|} = exp( 1/|y_i| sum_t log pi_theta/pi_old )
    A_i = ( r_i - mean(r) ) / std(r)

Variant meant: the paper's clip range 3e-4 / 4e-4 (section 5.1), no KL, sample std + 1e-4. One ratio and one
decision a response; the mean runs over responses, so no division by length other than the one inside s_i.
"""

import math

import torch

EPS_LEFT, EPS_RIGHT = 3e-4, 4e-4


def loss(*, logp, old_logp, mask, rewards, group_size, ref_logp=None, values=None, budget=None):
    B, T = logp.shape
    G = group_size
    m, r, pi_old = mask.tolist(), rewards.tolist(), old_logp.tolist()

    J = torch.zeros((), dtype=logp.dtype)
    for x in range(B // G):
        rs = [r[x * G + i] for i in range(G)]
        mean = sum(rs) / G
        std = math.sqrt(sum((v - mean) ** 2 for v in rs) / (G - 1))
        for i in range(G):
            y = x * G + i
            A = 0.0 if all(v == rs[0] for v in rs) else (rs[i] - mean) / (std + 1e-4)
            log_ratio, length = torch.zeros((), dtype=logp.dtype), 0
            for t in range(T):
                if m[y][t]:
                    log_ratio = log_ratio + (logp[y, t] - pi_old[y][t])
                    length += 1
            if length == 0:
                continue
            s = torch.exp(log_ratio / length)
            s_clip = s
            if s.item() > 1 + EPS_RIGHT:
                s_clip = torch.tensor(1 + EPS_RIGHT, dtype=logp.dtype)
            if s.item() < 1 - EPS_LEFT:
                s_clip = torch.tensor(1 - EPS_LEFT, dtype=logp.dtype)
            term = s * A if (s * A).item() <= (s_clip * A).item() else s_clip * A
            J = J + term / B
    return -J
