"""Answers to the exercises on RLOO: wrong ones on nobody's list, right ones by another route."""

import itertools

import torch

# ── wrong, on nobody's list ──────────────────────────────────────────────────────────────────────────────────────


def added_by_the_expected_error(p, group_size):
    """The mean distance, not squared."""
    one_right = 1 - (1 - p) ** (group_size - 1)
    return (one_right * (1 - p) + (1 - one_right) * p) / (p * (1 - p))


def weight_by_the_worst_prompt(p, group_size, m):
    """The largest error of m instead of the mean one."""
    of_group = (p * (1 - p)).mean() / (group_size - 1)
    return of_group / (of_group + ((m - p) ** 2).max())


def sizes_by_tokens_alone(p, tokens, budget):
    """The same tokens for every prompt."""
    return budget / len(p) / tokens


UNLISTED = [
    ("rloo-maximum", added_by_the_expected_error, "you return"),
    ("rloo-shrinkage", weight_by_the_worst_prompt, "you return"),
    ("rloo-sizes", sizes_by_tokens_alone, "you return"),
]


# ── right, by another route ──────────────────────────────────────────────────────────────────────────────────────


def added_by_listing(p, group_size):
    """Every outcome of the others."""
    total = 0.0
    for others in itertools.product((0, 1), repeat=group_size - 1):
        chance = 1.0
        for r in others:
            chance *= p if r else 1 - p
        total += chance * (max(others) - p) ** 2
    return total / (p * (1 - p))


def weight_by_search(p, group_size, m):
    """The vertex of the parabola through three points."""

    def noise(w):
        return ((1 - w) ** 2 * p * (1 - p) / (group_size - 1) + w**2 * (m - p) ** 2).mean()

    a, b, c = noise(0.0), noise(0.5), noise(1.0)
    return 0.25 * (3 * a - 4 * b + c) / (a - 2 * b + c)


def sizes_by_descent(p, tokens, budget):
    """Tokens are shared out as a softmax, which is trained until the noise is least."""
    logits = torch.zeros_like(p).requires_grad_()
    optimizer = torch.optim.LBFGS([logits], max_iter=500, tolerance_grad=1e-13, tolerance_change=1e-16)

    def noise():
        optimizer.zero_grad()
        value = (p * (1 - p) / (budget * logits.softmax(0) / tokens)).sum().log()
        value.backward()
        return value

    for _ in range(5):
        optimizer.step(noise)
    return (budget * logits.softmax(0) / tokens).detach()


RIGHT = [
    ("rloo-maximum", added_by_listing),
    ("rloo-shrinkage", weight_by_search),
    ("rloo-sizes", sizes_by_descent),
]
