"""Dr. GRPO, "GRPO done right" (Liu et al., arXiv 2503.20783, section 3.2 and figure 1).

    J = 1/G sum_i sum_t min[ rho A_i, clip(rho, 1-eps, 1+eps) A_i ]  / budget,         A_i = R_i - mean(R)

GRPO with both divisions removed: by std(R), and by |o_i|. The sum over tokens is divided by a constant; the
authors' code takes the generation budget (`masked_sum(..., constant_normalizer=generate_max_length)`), and so
does this. eps .2, no KL.
"""

import torch

EPS = 0.2


def loss(*, logp, old_logp, mask, rewards, group_size, ref_logp=None, values=None, budget=None):
    B, T = logp.shape
    G = group_size
    m, R, pi_old = mask.tolist(), rewards.tolist(), old_logp.tolist()

    per_response = []
    for i in range(B):
        q = i // G
        group = [R[j] for j in range(q * G, q * G + G)]
        A = R[i] - sum(group) / G
        if len(set(group)) == 1:
            A = 0.0  # the mean of equal floats may differ from them by an ulp
        total = torch.zeros((), dtype=logp.dtype)
        for t in range(T):
            if not m[i][t]:
                continue
            rho = torch.exp(logp[i, t] - pi_old[i][t])
            clipped = rho.clamp(1 - EPS, 1 + EPS)
            total = total + (rho * A if (rho * A <= clipped * A) else clipped * A)
        per_response.append(total / budget)
    return -sum(per_response) / B
