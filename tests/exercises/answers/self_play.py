"""Answers to the exercises on self-play: wrong ones on nobody's list, right ones by another route."""

from itertools import product
from math import prod

import torch

# ── wrong, on nobody's list ──────────────────────────────────────────────────────────────────────────────────────


def kept_by_root(p, G, most):
    """A smooth cap that is none."""
    return most * (1 - torch.exp(-G * p / most))


def dose_of_squares(yes, found):
    """The lead squared."""
    lead = max(0.0, (yes[1:].max() - yes[0]).item()) ** 2
    return lead / (lead + found) + 0.01


def spin_by_sum(data, start, beta, rounds):
    """Rounds that add up in place of multiplying."""
    return (start.log() + (data.log() - start.log()) * rounds / beta**2).softmax(-1)


UNLISTED = [
    ("play-capped", kept_by_root, "you return"),
    ("play-dose", dose_of_squares, "you return"),
    ("play-spin-rounds", spin_by_sum, "you return"),
]


# ── right, by another route ──────────────────────────────────────────────────────────────────────────────────────


def kept_by_tails(p, G, most):
    """The mean of min(C, m) as the sum of P(C >= j), the law built up sample by sample."""
    law = torch.zeros(len(p), G + 1, dtype=torch.float64)
    law[:, 0] = 1
    for _ in range(G):
        law = law * (1 - p[:, None]) + torch.nn.functional.pad(law, (1, -1)) * p[:, None]
    return sum(law[:, j:].sum(1) for j in range(1, most + 1))


def dose_by_bisection(yes, found):
    """The smallest dose by halving an interval."""

    def enough(d):
        earned = [(1 - d) * x for x in yes.tolist()]
        return earned[0] + d * found >= max(earned[1:])

    low, high = 0.0, 1.0
    if enough(0.0):
        return 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def spin_one_by_one(data, start, beta, rounds):
    """Every iteration, with products."""
    q = start
    for _ in range(rounds):
        q = q * (data / q) ** (1 / beta)
        q = q / q.sum()
    return q


RIGHT = [
    ("play-capped", kept_by_tails),
    ("play-dose", dose_by_bisection),
    ("play-spin-rounds", spin_one_by_one),
]


def listed_kept(p, G, most):
    """Every sequence of right and wrong, for one prompt."""
    return sum(min(sum(draws), most) * prod(p if x else 1 - p for x in draws) for draws in product((0, 1), repeat=G))
