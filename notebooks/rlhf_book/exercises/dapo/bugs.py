"""Find the bug: a filter of groups, as it was once written."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..bug import Bug


def suspect_keep(rewards: Tensor, group_size: int) -> Tensor:
    """[B] rewards -> [B]: True for every row of a group that has something to teach."""
    mean = rewards.view(-1, group_size).mean(1)  # [P]
    mixed = (mean > 0) & (mean < 1)
    return mixed.repeat_interleave(group_size)


def kept_groups(keep: Callable[..., Tensor]) -> None:
    """Groups of four under a verifier that gives half a point for the right format."""
    groups = {
        "all wrong": [0.0, 0.0, 0.0, 0.0],
        "one right": [1.0, 0.0, 0.0, 0.0],
        "half a point each": [0.5, 0.5, 0.5, 0.5],
    }
    for name, group in groups.items():
        rewards = torch.tensor(group)
        kept = "kept" if keep(rewards, 4).all() else "dropped"
        spread = (rewards - rewards.mean()).abs().max().item()
        print(f"{name:18s} {kept:8s} largest advantage before the division {spread}")


def equal_rewards_are_dropped(keep: Callable[..., Tensor]) -> None:
    """A group is kept if and only if two of its rewards differ, whatever the scale of the rewards is."""
    for scale, shift in ((1.0, 0.0), (0.5, 0.0), (2.0, -1.0), (0.3, 0.2)):
        one, zero = scale + shift, shift
        rewards = torch.tensor([one, one, one, zero, one, zero, zero, zero, zero])
        kept = keep(rewards, 3).tolist()
        assert kept == [False] * 3 + [True] * 3 + [False] * 3, (
            f"with rewards of {zero:.1f} and {one:.1f} it keeps {kept[::3]} of the groups all right, mixed, all wrong"
        )


def mended_keep(rewards: Tensor, group_size: int) -> Tensor:
    """[B] rewards -> [B]: True for every row of a group that has something to teach."""
    groups = rewards.view(-1, group_size)  # [P, G]
    mixed = groups.amax(1) > groups.amin(1)
    return mixed.repeat_interleave(group_size)


FRACTIONS = Bug(
    id="filter-by-mean",
    title="a filter that lets silence pass",
    concept="dynamic-sampling",
    minutes=5,
    statement="""
    The filter keeps the groups that are neither all right nor all wrong. It worked. Then the verifier began to give half
    a point for the right format, and the norm of the gradient fell, although every batch was full. The cell prints
    three groups.
    """,
    wrong=suspect_keep,
    symptom=kept_groups,
    reveals=equal_rewards_are_dropped,
    mended=mended_keep,
    idea="""
    Take rewards of a half for every completion, and then rewards of 1 and −1 in equal numbers. What is the group's
    mean, and what are the advantages?
    """,
    outline="""
    ```python
    groups = ...  # [P, G]
    mixed = ...  # [P], do two rewards of the row differ?
    return ...  # [B], one verdict for all rows of a group
    ```
    """,
    moral="""
    The filter asks for the group's mean, and means to ask for its spread. Both are the same question for rewards of 0
    and 1, and for no others: a group with half a point each has the mean 0.5 and no advantage. With rewards of 1 and -1 it
    would even drop mixed groups. The habit: state a filter in terms of what it protects, here the advantage.
    """,
)

BUGS = (FRACTIONS,)
