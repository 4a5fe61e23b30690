"""Answers to the exercises on DAPO: wrong ones that are on nobody's list, and right ones by another route."""

import torch

# ── wrong, on nobody's list ──────────────────────────────────────────────────────────────────────────────────────


def rollouts_with_one_more(p, target, high):
    """Counts the rollout before the first."""
    count = 1
    while p < target:
        p *= 1 + high
        count += 1
    return count


def price_by_pairs(p, group_size, groups):
    """A group is mixed if its first two differ."""
    return group_size * groups / (2 * p * (1 - p)).mean()


def rate_of_the_uniform_part(logits):
    """The distance of the probabilities from equal ones."""
    return ((logits.softmax(-1) - 1 / len(logits)) ** 2).sum()


UNLISTED = [
    ("dapo-rollouts", rollouts_with_one_more, "you return"),
    ("dapo-price", price_by_pairs, "you return"),
    ("dapo-bonus-rate", rate_of_the_uniform_part, "you return"),
]


# ── right, by another route ──────────────────────────────────────────────────────────────────────────────────────


def rollouts_by_a_loop(p, target, high):
    count = 0
    while p < target * (1 - 1e-9):
        p *= 1 + high
        count += 1
    return count


def price_by_geometric_series(p, group_size, groups):
    """Sums the chances that the n-th group is still needed for one mixed group."""
    dead = (p**group_size + (1 - p) ** group_size).mean().item()
    needed, total = 1.0, 0.0
    while needed > 1e-14:
        total, needed = total + needed, needed * dead
    return torch.tensor(group_size * groups * total, dtype=torch.float64)


def rate_by_autograd(logits):
    x = logits.detach().clone().requires_grad_()
    logp = x.log_softmax(-1)
    (slope,) = torch.autograd.grad(-(logp.exp() * logp).sum(), x)
    return (slope**2).sum()


RIGHT = [
    ("dapo-rollouts", rollouts_by_a_loop),
    ("dapo-price", price_by_geometric_series),
    ("dapo-bonus-rate", rate_by_autograd),
]
