"""Answers to the exercises on mixtures of experts: wrong ones on nobody's list, right ones by another route."""

import math

import torch

# ── wrong, on nobody's list ──────────────────────────────────────────────────────────────────────────────────────


def rate_with_one_layer_more(touched, layers):
    """An off-by-one in the number of layers."""
    return 1 - (1 - touched) ** (1 / (layers + 1))


def gradient_of_the_logarithm(p, picked, useful):
    """Differentiates log y."""
    value = (p * useful)[picked].sum()
    return p * (torch.where(picked, useful, 0.0) - value) / (1 + value.abs())


def balance_of_squares(logits, picked):
    """Squares the counts and leaves the probabilities out."""
    n, experts = logits.shape
    share = torch.bincount(logits.topk(picked, -1)[1].flatten(), minlength=experts) / n
    return experts * (share**2).sum() / picked


def crossing_doubled(share, jump, slope):
    """A factor of two for both signs."""
    return 2 * share * jump**2 / slope**2


def dropped_rounded_down(picks, experts, factor):
    """Places rounded down, and one more thrown in."""
    places = math.floor(factor * picks.numel() / experts) + 1
    load = torch.bincount(picks.flatten(), minlength=experts)
    return int((load - places - 1).clamp(min=0).sum())


UNLISTED = [
    ("moe-layers", rate_with_one_layer_more, "you return"),
    ("moe-raw-weights", gradient_of_the_logarithm, "you return"),
    ("moe-balance", balance_of_squares, "you return"),
    ("moe-crossing", crossing_doubled, "you return"),
    ("moe-capacity", dropped_rounded_down, "you return"),
]


# ── right, by another route ──────────────────────────────────────────────────────────────────────────────────────


def rate_by_bisection(touched, layers):
    """Tries rates until as many tokens are touched."""
    low, high = torch.zeros_like(touched), torch.ones_like(touched)
    for _ in range(80):
        middle = (low + high) / 2
        too_few = 1 - (1 - middle) ** layers < touched
        low, high = torch.where(too_few, middle, low), torch.where(too_few, high, middle)
    return low


def gradient_by_autograd(p, picked, useful):
    z = p.log().detach().requires_grad_()
    (g,) = torch.autograd.grad((z.softmax(-1) * useful)[picked].sum(), z)
    return g


def balance_by_loops(logits, picked):
    n, experts = logits.shape
    total = 0.0
    for e in range(experts):
        count = sum(e in row.topk(picked)[1].tolist() for row in logits)
        mean = sum(row.softmax(-1)[e].item() for row in logits) / n
        total += count / n * mean
    return experts * total


def crossing_by_search(share, jump, slope):
    """Halves the interval, in logarithms, until both variances agree."""
    found = []
    for a, j, s in zip(share.tolist(), jump.tolist(), slope.tolist(), strict=True):
        low, high = -40.0, 40.0
        for _ in range(120):
            middle = (low + high) / 2
            eta = math.exp(middle)
            low, high = (middle, high) if a * eta * j**2 > (eta * s) ** 2 else (low, middle)
        found.append(math.exp(low))
    return torch.tensor(found, dtype=torch.float64)


def dropped_one_by_one(picks, experts, factor):
    places = [math.ceil(factor * picks.numel() / experts)] * experts
    dropped = 0
    for e in picks.flatten().tolist():
        if places[e] == 0:
            dropped += 1
        else:
            places[e] -= 1
    return dropped


RIGHT = [
    ("moe-layers", rate_by_bisection),
    ("moe-raw-weights", gradient_by_autograd),
    ("moe-balance", balance_by_loops),
    ("moe-crossing", crossing_by_search),
    ("moe-capacity", dropped_one_by_one),
]
