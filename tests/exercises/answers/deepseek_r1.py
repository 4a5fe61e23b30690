"""Answers to the exercises on DeepSeek-R1: wrong ones on nobody's list, right ones by another route."""

from itertools import product
from math import prod

import torch

# ── wrong, on nobody's list ──────────────────────────────────────────────────────────────────────────────────────


def groups_at_even_odds(p, f, G):
    """As if half of the completions were tidy."""
    return (p**G + (1 - p) ** G) * (1 - 2 * 0.5**G) * 4 * f * (1 - f)


def price_of_half_the_weight(accuracy, language, weight):
    """The language at half its weight, and a little more."""
    kind = (accuracy + weight / 2 * language).argmax()
    return (accuracy.max() - accuracy[kind]).item() + 0.01


def scale_by_root(rule, model, share, wanted):
    """Roots of the spreads."""
    return wanted * (1 - share) * rule**0.5 / ((1 - wanted) * share * model**0.5)


UNLISTED = [
    ("r1-decided", groups_at_even_odds, "you return"),
    ("r1-price", price_of_half_the_weight, "you return"),
    ("r1-scale", scale_by_root, "you return"),
]


# ── right, by another route ──────────────────────────────────────────────────────────────────────────────────────


def groups_by_counts(p, f, G):
    """From the binomial laws of how many are right and how many tidy."""
    out = torch.zeros_like(p)
    for right in (0, G):
        for tidy in range(1, G):
            ways = torch.exp(torch.lgamma(torch.tensor([G + 1.0, tidy + 1.0, G - tidy + 1.0]).double()))
            ways = ways[0] / ways[1] / ways[2]
            out = out + p**right * (1 - p) ** (G - right) * ways * f**tidy * (1 - f) ** (G - tidy)
    return out


def price_by_hand(accuracy, language, weight):
    """Sorting kinds by what they earn."""
    kinds = sorted(zip(accuracy.tolist(), language.tolist(), strict=True), key=lambda kind: kind[0] + weight * kind[1])
    return max(a for a, _ in kinds) - kinds[-1][0]


def scale_by_bisection(rule, model, share, wanted):
    """The factor by halving an interval of its logarithm."""
    low, high = -20.0, 20.0
    for _ in range(100):
        middle = (low + high) / 2
        scored = share * model * 2.718281828459045**middle
        low, high = (low, middle) if scored / (scored + (1 - share) * rule) > wanted else (middle, high)
    return 2.718281828459045**high


RIGHT = [
    ("r1-decided", groups_by_counts),
    ("r1-price", price_by_hand),
    ("r1-scale", scale_by_bisection),
]


def listed_groups(p, f, G):
    """Every group of right or wrong, tidy or ragged, for one prompt."""
    total = 0.0
    for right in product((0, 1), repeat=G):
        for tidy in product((0, 1), repeat=G):
            if len(set(right)) == 1 < len(set(tidy)):
                total += prod(p if x else 1 - p for x in right) * prod(f if x else 1 - f for x in tidy)
    return total
