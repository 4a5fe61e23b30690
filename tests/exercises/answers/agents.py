"""Answers to the exercises on agents: wrong ones that are on no list, and right ones by another route."""

import torch

# ── wrong, on nobody's list ──────────────────────────────────────────────────────────────────────────────────────


def weights_of_the_longest(advantage, own, heard):
    """The second divides by the longest row."""
    read = own + heard
    per_row = advantage / len(own)
    return torch.stack([per_row / own, per_row / read.max(), advantage / read.sum()])


def mask_without_calls(first, end, length, width):
    """The token before each reply is taken away as well."""
    place = torch.arange(width)
    heard = (place >= first[..., None] - 1) & (place < end[..., None])
    return ((place < length[:, None]) & ~heard.any(1)).double()


def price_of_half(right_with, right_without, calls):
    """Half of what calls add."""
    return (right_with - right_without) / calls / 2


UNLISTED = [
    ("agents-token-weights", weights_of_the_longest, "you return"),
    ("agents-own-mask", mask_without_calls, "you return"),
    ("agents-price", price_of_half, "you return"),
]


# ── right, by another route ──────────────────────────────────────────────────────────────────────────────────────


def weights_by_autograd(advantage, own, heard):
    """The derivative of each loss by the log-prob of a row's first token."""
    B, T = len(own), int((own + heard).max())
    mask = (torch.arange(T) < own[:, None]).double()
    read = own + heard
    losses = (
        lambda x: ((x * mask).sum(1) / own).mean(),
        lambda x: ((x * mask).sum(1) / read).mean(),
        lambda x: (x * mask).sum() / read.sum(),
    )
    rows = []
    for loss in losses:
        logp = torch.zeros(B, T, dtype=torch.float64, requires_grad=True)
        rows.append(torch.autograd.grad(loss(advantage[:, None] * logp), logp)[0][:, 0])
    return torch.stack(rows)


def mask_by_loops(first, end, length, width):
    """Token by token."""
    rows = []
    for a, b, n in zip(first.tolist(), end.tolist(), length.tolist(), strict=True):
        spans = list(zip(a, b, strict=True))
        rows.append([float(t < n and not any(x <= t < y for x, y in spans)) for t in range(width)])
    return torch.tensor(rows, dtype=torch.float64)


def price_by_halving(right_with, right_without, calls):
    """The interval in which the better choice changes, halved."""
    low, high = 0.0, 1.0
    for _ in range(60):
        c = (low + high) / 2
        low, high = (c, high) if right_with - calls * c > right_without else (low, c)
    return low


RIGHT = [
    ("agents-token-weights", weights_by_autograd),
    ("agents-own-mask", mask_by_loops),
    ("agents-price", price_by_halving),
]
