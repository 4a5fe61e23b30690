"""Answers to the exercises on test-time scaling: wrong ones on nobody's list, right ones by another route."""

import math
from itertools import combinations

import torch

# ── wrong, on nobody's list ──────────────────────────────────────────────────────────────────────────────────────


def all_right_of_pairs(right, n, k):
    """The square whatever k is."""
    return (right.double() / n) ** 2 * (k > 0)


def gain_of_a_square(p, tokens, drawn):
    """The price squared."""
    return p * (1 - p) ** drawn / tokens**2


def vote_by_share(q, n):
    """The share that a larger power leaves."""
    return (q**n / (q**n).sum())[0].item()


def verified_by_entropy(p, n):
    """The entropy in place of the divergence."""
    q = 1 - (1 - p) ** n
    return q, -q * math.log(q) - (1 - q) * math.log(1 - q)


UNLISTED = [
    ("tts-all-right", all_right_of_pairs, "you return"),
    ("tts-next-sample", gain_of_a_square, "you return"),
    ("tts-vote-chance", vote_by_share, "you return"),
    ("tts-verified-best", verified_by_entropy, "you return"),
]


# ── right, by another route ──────────────────────────────────────────────────────────────────────────────────────


def all_right_by_listing(right, n, k):
    """Every choice of k of the n, one after the other."""
    found = []
    for c in right.tolist():
        choices = list(combinations([1] * c + [0] * (n - c), k))
        found.append(sum(all(choice) for choice in choices) / len(choices))
    return torch.tensor(found, dtype=torch.float64)


def gain_by_difference(p, tokens, drawn):
    """Solved after the next one, minus solved before it."""
    return ((1 - (1 - p) ** (drawn + 1)) - (1 - (1 - p) ** drawn)) / tokens


def vote_by_counts(q, n):
    """Over tables of counts with their multinomial probability."""

    def tables(answers, votes):
        if answers == 1:
            yield (votes,)
            return
        for first in range(votes + 1):
            for rest in tables(answers - 1, votes - first):
                yield (first, *rest)

    total = 0.0
    for counts in tables(len(q), n):
        chance = math.factorial(n) * math.prod(
            x**m / math.factorial(m) for x, m in zip(q.tolist(), counts, strict=True)
        )
        if counts[0] == max(counts):
            total += chance / counts.count(max(counts))
    return total


def verified_by_two_atoms(p, n):
    """The divergence of two laws on two points, by torch."""
    wrong = torch.tensor(1 - p, dtype=torch.float64) ** n
    kept, policy = torch.stack([1 - wrong, wrong]), torch.tensor([p, 1 - p], dtype=torch.float64)
    return kept[0].item(), (kept * (kept.log() - policy.log())).sum().item()


RIGHT = [
    ("tts-all-right", all_right_by_listing),
    ("tts-next-sample", gain_by_difference),
    ("tts-vote-chance", vote_by_counts),
    ("tts-verified-best", verified_by_two_atoms),
]
