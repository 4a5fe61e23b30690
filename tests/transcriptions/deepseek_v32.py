"""DeepSeek-V3.2 (arXiv 2512.02556, section on scaling GRPO: unbiased KL estimate, off-policy sequence masking).

    J = 1/B sum_i 1/|o_i| sum_t [ M_i min( rho A_i, clip(rho, 1-eps, 1+eps) A_i ) - beta rho ( r - log r - 1 ) ]
    r = pi_ref / pi_theta,   rho = pi_theta / pi_old,   A_i = R_i - mean(R)
    M_i = 0 if A_i < 0 and 1/|o_i| sum_t log( pi_sampler / pi_theta ) > delta, else 1

Variant meant: eps .2, beta .001, delta .5 (TRL's; the paper prints none), the drift measured against the engine that
sampled, as the paper's note below eq. 9 says. M is a constant; the KL of a masked response stays, and so does its place
in B and |o_i|.
"""

import torch

EPS, BETA, DELTA = 0.2, 0.001, 0.5


def loss(*, logp, old_logp, mask, rewards, group_size, ref_logp=None, values=None, budget=None, sampler_logp=None):
    B, T = logp.shape
    m, r, pi_old, pi_ref, mu = (x.tolist() for x in (mask, rewards, old_logp, ref_logp, sampler_logp))

    J = torch.zeros((), dtype=logp.dtype)
    for q in range(B // group_size):
        group = r[q * group_size : (q + 1) * group_size]
        for n, reward in enumerate(group):
            i = q * group_size + n
            A = 0.0 if all(x == reward for x in group) else reward - sum(group) / group_size
            o = [t for t in range(T) if m[i][t]]
            if not o:
                continue
            drift = sum(mu[i][t] - logp[i, t].item() for t in o) / len(o)
            M = 0.0 if A < 0 and drift > DELTA else 1.0
            for t in o:
                rho = torch.exp(logp[i, t] - pi_old[i][t])
                if A >= 0:
                    term = A * (rho if rho.item() < 1 + EPS else torch.full_like(rho, 1 + EPS))
                else:
                    term = A * (rho if rho.item() > 1 - EPS else torch.full_like(rho, 1 - EPS))
                k3 = torch.exp(pi_ref[i][t] - logp[i, t]) - (pi_ref[i][t] - logp[i, t]) - 1
                J = J + (M * term - BETA * rho * k3) / (len(o) * B)
    return -J
