"""Answers to the exercises on off-policy data: wrong ones that are on no list, and right ones by another route."""

import math

import torch

# ── wrong, on nobody's list ──────────────────────────────────────────────────────────────────────────────────────


def share_of_logs(logp, sampler_logp, mask):
    """Sums of log-weights in place of weights."""
    log_weight = ((logp - sampler_logp) * mask).sum(-1)
    return (1 + log_weight).sum() ** 2 / (len(mask) * ((1 + log_weight) ** 2).sum())


def break_even_with_a_half(bias, noise, exact_noise):
    """Half of the right number."""
    return (exact_noise**2 - noise**2) / (2 * bias**2)


def log_weight_of_the_likelier(logp, first, second, switched_at, mask):
    """Whichever version found the token likelier."""
    return ((logp - torch.maximum(first, second)) * mask).sum(-1)


def reach_of_the_ratio(p, delta):
    """A bound on the ratio that the square root suggests."""
    return min(1.0, p * (1 + math.sqrt(2 * delta)))


UNLISTED = [
    ("off-sample-size", share_of_logs, "you return"),
    ("off-break-even", break_even_with_a_half, "you return"),
    ("off-versions", log_weight_of_the_likelier, "you return"),
    ("off-reach", reach_of_the_ratio, "you return"),
]


# ── right, by another route ──────────────────────────────────────────────────────────────────────────────────────


def share_by_normalised_weights(logp, sampler_logp, mask):
    """One over the sum of squared shares, token by token in a loop."""
    weights = []
    for ours, theirs, kept in zip(logp.tolist(), sampler_logp.tolist(), mask.tolist(), strict=True):
        weights.append(math.exp(sum(a - b for a, b, m in zip(ours, theirs, kept, strict=True) if m)))
    total = sum(weights)
    return torch.tensor(1 / sum((w / total) ** 2 for w in weights) / len(weights))


def break_even_by_bisection(bias, noise, exact_noise):
    """Where the two mean squared distances cross."""
    low, high = 1e-9, 1e9
    for _ in range(200):
        n = math.sqrt(low * high)
        low, high = (n, high) if exact_noise**2 / n > bias**2 + noise**2 / n else (low, n)
    return high


def log_weight_by_loops(logp, first, second, switched_at, mask):
    """Token by token."""
    found = []
    for b in range(len(mask)):
        writer = [second[b, t] if t >= switched_at[b] else first[b, t] for t in range(mask.shape[1])]
        found.append(sum(float(logp[b, t] - writer[t]) for t in range(mask.shape[1]) if mask[b, t]))
    return torch.tensor(found, dtype=logp.dtype)


def reach_by_newton(p, delta):
    """Newton's method on log(1 - q), from the right end."""
    y = -20.0  # log(1 - q)
    for _ in range(100):
        q = 1 - math.exp(y)
        value = p * math.log(p / q) + (1 - p) * (math.log(1 - p) - y) - delta
        slope = p * math.exp(y) / q - (1 - p)
        y = min(y - value / slope, math.log(1 - p) - 1e-12)
    return 1 - math.exp(y)


RIGHT = [
    ("off-sample-size", share_by_normalised_weights),
    ("off-break-even", break_even_by_bisection),
    ("off-versions", log_weight_by_loops),
    ("off-reach", reach_by_newton),
]
