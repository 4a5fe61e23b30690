"""Answers to the exercises on diagnosis: wrong ones on nobody's list, right ones by another route."""

import torch

# ── wrong, on nobody's list ──────────────────────────────────────────────────────────────────────────────────────


def between_of_medians(advantages, group_size):
    """The lower medians of the prompts, and a little more."""
    medians = advantages.view(-1, group_size).median(1).values
    return ((medians.square().mean() + 0.01) / advantages.square().mean()).item()


def push_doubled(before, after, advantages, mask):
    """Twice as much."""
    return 2 * push_in_loops(before, after, advantages, mask)


def verdict_always(gap_first, gap_last, trained, agreement, rise):
    """One answer for all."""
    return 3


UNLISTED = [
    ("diag-between", between_of_medians, "you return"),
    ("diag-push", push_doubled, "you return"),
    ("diag-verdict", verdict_always, "you return"),
]


# ── right, by another route ──────────────────────────────────────────────────────────────────────────────────────


def between_by_variance(advantages, group_size):
    """All, less what is left when each prompt's mean is subtracted."""
    groups = advantages.view(-1, group_size)
    within = groups.var(1, unbiased=False).mean()
    return (1 - within / groups.square().mean()).item()


def push_in_loops(before, after, advantages, mask):
    """Token by token."""
    gained = [
        advantages[i].item() * (after[i, t] - before[i, t]).item()
        for i in range(len(mask))
        for t in range(mask.shape[1])
        if mask[i, t]
    ]
    return sum(gained) / len(gained)


def verdict_by_list(gap_first, gap_last, trained, agreement, rise):
    """The first of a list of questions that is answered with yes."""
    asked = [not 0.999 <= trained <= 1.001, gap_first > 1e-3, gap_last > 1e-3, agreement < -0.2, rise < -0.05]
    return int(torch.tensor([*asked, True]).int().argmax() + 1) % 6


RIGHT = [
    ("diag-between", between_by_variance),
    ("diag-push", push_in_loops),
    ("diag-verdict", verdict_by_list),
]
