"""Answers to the exercises on the anatomy of the algorithms: wrong ones that are on nobody's list, and right ones."""

import dataclasses

import torch

from rlhf_minimal import ALGORITHMS, contrib, gradient_weight, token_weights

# ── wrong, on nobody's list ──────────────────────────────────────────────────────────────────────────────────────


def gate_by_the_smallest(ratio, good, bad):
    """Takes whatever ends low for a clip."""
    return 1 if good[-1] < 0.5 else 0


def weight_at_half(ratio, A):
    """Halves the step of everything bad."""
    return torch.where(A > 0, A, 0.5 * A)


def share_by_the_longest(mask, group_size):
    """Divides by the longest completion of the prompt."""
    groups = mask.view(-1, group_size, mask.shape[1])
    longest = groups.sum(2).amax(1)[:, None, None]
    return (groups / longest / group_size / len(groups)).view_as(mask)


UNLISTED = [
    ("anatomy-which-gate", gate_by_the_smallest, "you return"),
    ("anatomy-described", weight_at_half, "you return"),
    ("anatomy-prompt-mean", share_by_the_longest, "you return"),
]


# ── right, by another route ──────────────────────────────────────────────────────────────────────────────────────


def gate_by_three_ratios(ratio, good, bad):
    """Looks at ratio 1/8, between 1.5 and 2, and at 8."""
    middle = ((ratio > 1.5) & (ratio < 2)).nonzero()[0, 0]
    if good[0] > 0.99:
        return 0
    if good[middle] == 0:
        return 1 if bad[-1] < 0 else 2
    return 3 if good[-1] > 1.9 else 4


def weight_by_autograd(ratio, A):
    """The row that the exercise asks for, with a gate of the paper's form."""

    def gate(w, A):
        factor = torch.where(A > 0, torch.ones_like(w), w.detach().clamp(max=1.0))
        return factor * A * w.log()

    row = dataclasses.replace(ALGORITHMS["grpo"], gate=gate, kl=())
    return gradient_weight(row, ratio, A)


def share_by_the_library(mask, group_size):
    row = dataclasses.replace(ALGORITHMS["dapo"], aggregate=contrib.aggregation.prompt_mean)
    return token_weights(row, mask, group_size=group_size)


def share_by_loops(mask, group_size):
    share, prompts = torch.zeros_like(mask), len(mask) // group_size
    for p in range(prompts):
        rows = slice(p * group_size, (p + 1) * group_size)
        share[rows] = mask[rows] / float(mask[rows].sum()) / prompts
    return share


RIGHT = [
    ("anatomy-which-gate", gate_by_three_ratios),
    ("anatomy-described", weight_by_autograd),
    ("anatomy-prompt-mean", share_by_the_library),
    ("anatomy-prompt-mean", share_by_loops),
]
