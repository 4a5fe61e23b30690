"""Answers to the exercises on verifiable rewards: wrong ones on nobody's list, right ones by another route."""

import itertools
import math
from fractions import Fraction

import torch

# ── wrong, on nobody's list ──────────────────────────────────────────────────────────────────────────────────────


def rates_by_guess(passed, failed, wrong_passed, right_failed):
    """Half of each share."""
    return wrong_passed / 2, right_failed / 2


def step_by_guess(p, a, b, G, divide):
    """One plus the true rate."""
    return (1 - a - b) * (1 + p)


def length_by_guess(lengths, rewards, group_size):
    """How far the lengths lie apart."""
    return lengths.double().std().item()


def tests_by_guess(tests, passes, limit):
    """Twice the tests."""
    return 2 * tests


UNLISTED = [
    ("rlvr-audit", rates_by_guess, "you return"),
    ("rlvr-noisy-step", step_by_guess, "you return"),
    ("rlvr-length-pay", length_by_guess, "you return"),
    ("rlvr-spot-check", tests_by_guess, "you return"),
]


# ── right, by another route ──────────────────────────────────────────────────────────────────────────────────────


def rates_by_counting(passed, failed, wrong_passed, right_failed):
    """From the table of the four kinds of completions."""
    table = torch.tensor(
        [[passed * (1 - wrong_passed), passed * wrong_passed], [failed * right_failed, failed * (1 - right_failed)]],
        dtype=torch.float64,
    )  # rows: passed, failed; columns: right, wrong
    shares = table / table.sum(0)
    return shares[0, 1].item(), shares[1, 0].item()


def step_by_listing(p, a, b, G, divide):
    """Every pattern of verdicts of the whole group, and the slope of the score of the first completion."""
    q, total = a + (1 - a - b) * p, 0.0
    for pattern in itertools.product((0.0, 1.0), repeat=G):
        x = torch.tensor(pattern, dtype=torch.float64)
        chance = math.prod(q if r else 1 - q for r in pattern)
        A = x - x.mean()
        if divide:
            A = A / x.std() if len(set(pattern)) > 1 else 0 * A
        slope = (1 if x[0] else -1) / (q if x[0] else 1 - q)  # of the log-chance of the first verdict, by q
        total += chance * A[0].item() * slope
    return (1 - a - b) * total


def length_by_torch(lengths, rewards, group_size):
    """torch's covariance, a group at a time."""
    pairs = zip(lengths.double().split(group_size), rewards.double().split(group_size), strict=True)
    return torch.stack([torch.cov(torch.stack(pair))[0, 1] for pair in pairs]).mean().item()


def tests_by_drawing_on(tests, passes, limit):
    """One test after the other, in fractions."""
    chance, drawn = Fraction(1), 0
    while float(chance) > limit:
        chance *= Fraction(max(passes - drawn, 0), tests - drawn)
        drawn += 1
    return drawn


RIGHT = [
    ("rlvr-audit", rates_by_counting),
    ("rlvr-noisy-step", step_by_listing),
    ("rlvr-length-pay", length_by_torch),
    ("rlvr-spot-check", tests_by_drawing_on),
]
