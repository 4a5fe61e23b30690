"""Answers to the exercises on reward models: wrong ones that are on nobody's list, and right ones by another route."""

import torch

# ── wrong, on nobody's list ──────────────────────────────────────────────────────────────────────────────────────


def accuracy_with_shrunk_gaps(gaps, flip):
    """Flips as a factor on the gap instead of on the probability."""
    return ((1 - 2 * flip) * gaps.abs()).sigmoid().mean()


def policy_of_squared_odds(reference, wins, beta):
    """The odds counted twice."""
    return (reference.log() + 2 * wins[:, 0].logit() / beta).softmax(0)


def share_that_rises_of_the_better_half(reference, rewards, beta):
    """Rising and above the median."""
    threshold = beta * (reference.log() + rewards / beta).logsumexp(0)
    return (reference * (rewards > threshold) * (rewards > rewards.median())).sum() ** 2


def free_numbers_by_halves(pairs, completions):
    """A pair takes a half."""
    return completions - len(pairs) // 2


UNLISTED = [
    ("rm-flipped", accuracy_with_shrunk_gaps, "you return"),
    ("rm-from-wins", policy_of_squared_odds, "you return"),
    ("rm-rise", share_that_rises_of_the_better_half, "you return"),
    ("rm-free-numbers", free_numbers_by_halves, "you return"),
]


# ── right, by another route ──────────────────────────────────────────────────────────────────────────────────────


def accuracy_as_a_shrunk_excess(gaps, flip):
    """Flips shrink the excess over one half."""
    return 0.5 + (1 - 2 * flip) * (gaps.abs().sigmoid().mean() - 0.5)


def policy_by_odds(reference, wins, beta):
    """Products of odds against the last completion, made to sum to one."""
    weight = reference * (wins[:, -1] / (1 - wins[:, -1])) ** (1 / beta)
    return weight / weight.sum()


def share_that_rises_by_pairs(reference, rewards, beta):
    """Every ordered pair, one at a time."""
    best = reference * (rewards / beta).exp()
    best = best / best.sum()
    total = torch.zeros((), dtype=reference.dtype)
    for i in range(len(reference)):
        for j in range(len(reference)):
            first = torch.sigmoid(rewards[i] - rewards[j])
            ends = first * (best[i] > reference[i]) + (1 - first) * (best[j] > reference[j])
            total = total + reference[i] * reference[j] * ends
    return total


def free_numbers_by_rank(pairs, completions):
    """The directions that no gap sees: the null space of the matrix of differences."""
    differences = torch.zeros(len(pairs), completions, dtype=torch.float64)
    for row, (one, other) in enumerate(pairs.tolist()):
        differences[row, one] += 1
        differences[row, other] -= 1
    return completions - int(torch.linalg.matrix_rank(differences))


RIGHT = [
    ("rm-flipped", accuracy_as_a_shrunk_excess),
    ("rm-from-wins", policy_by_odds),
    ("rm-rise", share_that_rises_by_pairs),
    ("rm-free-numbers", free_numbers_by_rank),
]
