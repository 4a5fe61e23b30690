"""Answers to the exercises on PPO for RLHF: wrong ones that are on nobody's list, and right ones by another route."""

import itertools
import math

import torch

from rlhf_book.exercises.ppo_rlhf.best_of_n import my_best_of_n
from rlhf_book.exercises.ppo_rlhf.slope import my_slope

# ── wrong, on nobody's list ──────────────────────────────────────────────────────────────────────────────────────


def beta_by_a_difference(gain, nats, share):
    """Subtracts where it should divide."""
    return gain - nats


def slope_with_sample_variance(ref, gold, proxy, beta):
    """N - 1 in the variance."""
    return my_slope(ref, gold, proxy, beta) * (len(ref) - 1) / len(ref)


def bytes_in_32_bits(n, a):
    return 40 * n, 4 * n + 2 * (16 * a) + 4 * a


def best_of_one_more(p, scores, n):
    return my_best_of_n(p, scores, n + 1)


UNLISTED = [
    ("rlhf-threshold", beta_by_a_difference, "you return"),
    ("rlhf-slope", slope_with_sample_variance, "you return"),
    ("rlhf-bytes", bytes_in_32_bits, "you return"),
    ("rlhf-best-of-n", best_of_one_more, "you return"),
]

# ── right, by another route ──────────────────────────────────────────────────────────────────────────────────────


def beta_by_bisection(gain, nats, share):
    """The share under the optimum itself, for one lambda after the other."""
    low, high = 0.0, 1e6
    for _ in range(400):
        middle = (low + high) / 2
        found = 1 / (1 + math.exp(min(700.0, nats - middle * gain)))
        low, high = (middle, high) if found < share else (low, middle)
    return 2 / (low + high)


def slope_by_differences(ref, gold, proxy, beta):
    """Central differences of gold and of the KL over lambda."""

    def at(lam):
        p = (ref.log() + lam * proxy).softmax(0)
        return p @ gold, p @ (p / ref).log()

    (g0, k0), (g1, k1) = at(1 / beta - 1e-4), at(1 / beta + 1e-4)
    return float((g1 - g0) / (k1 - k0))


def bytes_by_counting(n, a):
    weights = {"policy": n, "critic": n, "reference": n, "reward model": n}
    whole = sum(size * (16 if model in ("policy", "critic") else 2) for model, size in weights.items())
    return whole, sum([2 * n, 16 * a, 16 * a, 2 * a])


def best_of_n_by_enumeration(p, scores, n):
    """The level of the best so far, one draw after the other; within a level the chances are those of one draw."""
    levels = sorted(set(scores.tolist()))
    chance = {level: p[scores == level].sum() for level in levels}
    best = {level: torch.zeros((), dtype=p.dtype) for level in levels}
    best[levels[0]] = torch.ones((), dtype=p.dtype)
    for _ in range(n):
        after = dict.fromkeys(levels, torch.zeros((), dtype=p.dtype))
        for kept, drawn in itertools.product(levels, levels):
            after[max(kept, drawn)] = after[max(kept, drawn)] + best[kept] * chance[drawn]
        best = after
    return torch.stack([best[s] * q / chance[s] for s, q in zip(scores.tolist(), p, strict=True)])


RIGHT = [
    ("rlhf-threshold", beta_by_bisection),
    ("rlhf-slope", slope_by_differences),
    ("rlhf-bytes", bytes_by_counting),
    ("rlhf-best-of-n", best_of_n_by_enumeration),
]
