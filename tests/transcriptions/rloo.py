"""RLOO, REINFORCE leave-one-out (Ahmadian et al., arXiv 2402.14740, section 3; Kool et al. 2019).

    (1/k) sum_i [ R(y_i, x) - 1/(k-1) sum_{j != i} R(y_j, x) ] grad log pi(y_i | x)
    R(y, x) = r(y, x) - beta log( pi(y | x) / pi_ref(y | x) )

Variant meant: REINFORCE on the whole response, without ratio and without clip (TRL's RLOO clips a product of
ratios; that is another algorithm). The KL is k1, inside the reward and therefore inside the baseline, beta =
0.05, evaluated with the sampler's log-probs and not differentiated. log pi(y | x) is the sum over trained
tokens. A fully masked row has no trained token: its KL is 0, its reward still enters the others' baselines.
Value of the surrogate: with the ratio pi / sg[pi] = 1 at each token.
"""

import torch

BETA = 0.05


def loss(*, logp, old_logp, mask, rewards, group_size, ref_logp=None, values=None, budget=None):
    B, T = logp.shape
    k = group_size
    m, r, pi_old, pi_ref = mask.tolist(), rewards.tolist(), old_logp.tolist(), ref_logp.tolist()

    J = torch.zeros((), dtype=logp.dtype)
    for x in range(B // k):  # prompts
        R = []
        for y in range(x * k, (x + 1) * k):
            log_ratio = 0.0
            for t in range(T):
                if m[y][t]:
                    log_ratio += pi_old[y][t] - pi_ref[y][t]
            R.append(r[y] - BETA * log_ratio)
        for i in range(k):
            others = [R[j] for j in range(k) if j != i]
            A = 0.0 if all(R_j == R[i] for R_j in others) else R[i] - sum(others) / (k - 1)
            for t in range(T):
                if m[x * k + i][t]:
                    lp = logp[x * k + i, t]
                    J = J + torch.exp(lp - lp.detach()) * A / B
    return -J
