"""Answers to the exercises on making it fast: wrong ones that are on nobody's list, and right ones by another route."""

import itertools
import math

import torch

from rlhf_minimal.lab.chunked import chunked_logprobs

# ── wrong, on nobody's list ──────────────────────────────────────────────────────────────────────────────────────


def alive_by_the_logarithm(stop, budget, rows):
    """The longest of B as the approximation of many rows has it."""
    return alive_by_enumeration(stop, budget, rows)[0], rows * math.log(rows) / stop


def tokens_by_the_mean(prompt, lengths):
    """Rounds the mean length down before it is multiplied."""
    return len(lengths) * (prompt + int(lengths.max())), prompt + len(lengths) * (int(lengths.sum()) // len(lengths))


def cost_from_below(lengths, overhead):
    """A piece as wide as its shortest row."""
    sizes = sorted(lengths.tolist())
    return min(len(sizes) * sizes[0] + overhead, sizes[0] + 2 * overhead)


def saved_by_variance(p, group_size):
    """Some other measure of agreement."""
    return 2 / 3 * (1 - 4 * p * (1 - p)).mean()


def gradient_of_the_largest(hidden, weight, ids, upstream):
    """Takes the likeliest token for all of the softmax."""
    return (weight[ids] - weight[(hidden @ weight.T).argmax(-1)]) * upstream[:, None]


def bend_by_the_mean(weights, kept, weight_bytes, cache_bytes, bandwidth, flops):
    """Half of the bend without caches, as if every cache were half full."""
    return weight_bytes * flops / bandwidth / 4


UNLISTED = [
    ("fast-bend", bend_by_the_mean, "you return"),
    ("fast-alive", alive_by_the_logarithm, "you return"),
    ("fast-prefix", tokens_by_the_mean, "you return"),
    ("fast-cut", cost_from_below, "you return"),
    ("fast-idle", saved_by_variance, "you return"),
    ("fast-head", gradient_of_the_largest, "you return"),
]


# ── right, by another route ──────────────────────────────────────────────────────────────────────────────────────


def alive_by_enumeration(stop, budget, rows):
    """From the distribution of the length, and of the longest of B by its distribution function."""
    chance = [stop * (1 - stop) ** (n - 1) for n in range(1, budget)] + [(1 - stop) ** (budget - 1)]
    up_to = list(itertools.accumulate(chance))
    longest = [now**rows - before**rows for before, now in zip([0.0, *up_to], up_to, strict=False)]
    lengths = range(1, budget + 1)
    mean = sum(n * p for n, p in zip(lengths, chance, strict=True))
    return rows * mean, rows * sum(n * p for n, p in zip(lengths, longest, strict=True))


def tokens_by_loops(prompt, lengths):
    longest = 0
    for n in lengths:
        longest = max(longest, int(n))
    whole, shared = 0, prompt
    for n in lengths:
        whole += prompt + longest
        shared += int(n)
    return whole, shared


def cost_by_all_divisions(lengths, overhead):
    """Every way of dividing the rows among two heaps, in order or not."""
    if len(lengths) > 9:
        return cost_by_the_order_of_cuts(lengths, overhead)
    rows, costs = lengths.tolist(), []
    for sides in itertools.product([0, 1], repeat=len(rows)):
        heaps = [[n for n, side in zip(rows, sides, strict=True) if side == which] for which in (0, 1)]
        costs.append(sum(len(heap) * max(heap) + overhead for heap in heaps if heap))
    return min(costs)


def cost_by_the_order_of_cuts(lengths, overhead):
    ordered = lengths.sort().values
    whole = [ordered.tensor_split(cuts) for cuts in ([], *([k] for k in range(1, len(ordered))))]
    return min(sum(len(piece) * int(piece[-1]) + overhead for piece in pieces) for pieces in whole)


def saved_by_counting(p, group_size):
    """From the distribution of the number of right answers: its two ends are idle."""
    k = torch.tensor([0.0, group_size], dtype=p.dtype)
    idle = torch.distributions.Binomial(group_size, p[:, None]).log_prob(k).exp().sum(-1).mean()
    plain = 1 + 2
    return 1 - (plain - 2 * idle) / plain


def gradient_by_the_library(hidden, weight, ids, upstream):
    leaf = hidden.clone().requires_grad_()
    logp, _ = chunked_logprobs(leaf[None], weight, ids[None], chunk=2)
    return torch.autograd.grad((logp[0] * upstream).sum(), leaf)[0]


def gradient_by_autograd(hidden, weight, ids, upstream):
    leaf = hidden.clone().requires_grad_()
    logp = torch.log_softmax(leaf @ weight.T, -1).gather(1, ids[:, None])[:, 0]
    return torch.autograd.grad((logp * upstream).sum(), leaf)[0]


def bend_by_halving(weights, kept, weight_bytes, cache_bytes, bandwidth, flops):
    """Where the difference of the two times changes its sign, found by halving an interval."""

    def memory_ahead(rows):
        return (weights * weight_bytes + rows * kept * cache_bytes) / bandwidth > 2 * weights * rows / flops

    low, high = 0.0, 1e12
    if memory_ahead(high):
        return 0.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if memory_ahead(middle) else (low, middle)
    return high


RIGHT = [
    ("fast-bend", bend_by_halving),
    ("fast-alive", alive_by_enumeration),
    ("fast-prefix", tokens_by_loops),
    ("fast-cut", cost_by_all_divisions),
    ("fast-cut", cost_by_the_order_of_cuts),
    ("fast-idle", saved_by_counting),
    ("fast-head", gradient_by_the_library),
    ("fast-head", gradient_by_autograd),
]
