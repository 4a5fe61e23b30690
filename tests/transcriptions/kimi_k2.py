"""Kimi K2's policy optimisation (arXiv 2507.20534, section 3.2.3; derived in Kimi k1.5, arXiv 2501.12599).

    L = 1/K sum_i [ ( r(x, y_i) - mean(r) - tau log( pi_theta(y_i | x) / pi_old(y_i | x) ) )^2 ]

Here this squared loss divided by 2 tau, tau = .1 (the paper gives no value): its gradient is then

    -1/K sum_i ( r_i - mean(r) - tau log ratio_i ) grad log pi_theta(y_i | x),

a policy gradient with a soft pull to pi_old. The log-ratio is of the whole response, summed over its trained
tokens. THE VALUE DIFFERS from a surrogate with "ratio 1 + k2 against pi_old": only the gradient is to be
compared. A fully masked row has no log-ratio, so its square is a constant and is left out; it counts in K and
in the mean of rewards.
"""

import torch

TAU = 0.1
SAME_VALUE = False  # compare gradients: see above


def loss(*, logp, old_logp, mask, rewards, group_size, ref_logp=None, values=None, budget=None):
    B, T = logp.shape
    K = group_size
    m, r, pi_old = mask.tolist(), rewards.tolist(), old_logp.tolist()

    L = torch.zeros((), dtype=logp.dtype)
    for x in range(B // K):
        group = r[x * K : (x + 1) * K]
        r_bar = sum(group) / K
        for i in range(x * K, (x + 1) * K):
            y = [t for t in range(T) if m[i][t]]
            if not y:
                continue
            log_ratio = torch.zeros((), dtype=logp.dtype)
            for t in y:
                log_ratio = log_ratio + (logp[i, t] - pi_old[i][t])
            centred = 0.0 if min(group) == max(group) else r[i] - r_bar
            L = L + (centred - TAU * log_ratio) ** 2 / B
    return L / (2 * TAU)
