"""Answers to the exercises on judges: wrong ones that are on no list, and right ones by another route."""

from itertools import combinations

import torch

# ── wrong, on nobody's list ──────────────────────────────────────────────────────────────────────────────────────


def points_doubled(honest, fooled, k):
    """Losses count twice."""
    others = [j for j in range(len(honest)) if j != k]
    return float(2 * (honest - fooled)[others].sum() / (fooled[k] - honest[k]))


def advantage_of_halves(marks, kept):
    """The z-score of each choice, halved."""
    total = torch.zeros(len(marks), dtype=marks.dtype)
    choices = list(combinations(range(marks.shape[1]), kept))
    for chosen in choices:
        r = marks[:, list(chosen)].sum(1)
        total += 0.5 * (r - r.mean()) / r.std() if r.std() > 0 else 0.0
    return total / len(choices)


def orders_without_agreement(first, second):
    """Agreement counted among A's wins alone."""
    both = (first * second).mean()
    return torch.stack([(first + second).mean() / 2, both])


UNLISTED = [
    ("judges-points", points_doubled, "you return"),
    ("judges-dropped", advantage_of_halves, "you return"),
    ("judges-both-orders", orders_without_agreement, "you return"),
]


# ── right, by another route ──────────────────────────────────────────────────────────────────────────────────────


def points_by_halving(honest, fooled, k):
    """The interval in which the winner changes, halved."""
    low, high = -10.0, 50.0
    for _ in range(80):
        w = (low + high) / 2
        weight = torch.ones_like(honest)
        weight[k] = w
        low, high = (w, high) if (weight * honest).sum() > (weight * fooled).sum() else (low, w)
    return low


def advantage_by_loops(marks, kept):
    """Row by row, choice by choice."""
    G, K = marks.shape
    choices = list(combinations(range(K), kept))
    mean = [0.0] * G
    for chosen in choices:
        r = [sum(marks[i, k].item() for k in chosen) for i in range(G)]
        middle = sum(r) / G
        spread = (sum((x - middle) ** 2 for x in r) / (G - 1)) ** 0.5
        for i in range(G):
            if max(r) > min(r):
                mean[i] += (r[i] - middle) / spread / len(choices)
    return torch.tensor(mean, dtype=marks.dtype)


def orders_by_counting(first, second):
    """Prompt by prompt."""
    pairs = list(zip(first.tolist(), second.tolist(), strict=True))
    rate = sum({2: 1.0, 1: 0.5, 0: 0.0}[int(a + b)] for a, b in pairs) / len(pairs)
    return torch.tensor([rate, sum(a == b for a, b in pairs) / len(pairs)], dtype=torch.float64)


RIGHT = [
    ("judges-points", points_by_halving),
    ("judges-dropped", advantage_by_loops),
    ("judges-both-orders", orders_by_counting),
]
