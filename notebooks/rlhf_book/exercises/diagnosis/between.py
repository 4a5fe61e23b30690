"""The share of the advantages' mean square that lies between prompts."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given


def my_between(advantages: Tensor, group_size: int) -> float:
    """[B], groups contiguous -> the share that lies between groups."""
    means = advantages.view(-1, group_size).mean(1)
    return (means.square().mean() / advantages.square().mean()).item()


def _interleaved(advantages: Tensor, group_size: int) -> float:
    means = advantages.view(group_size, -1).mean(0)
    return (means.square().mean() / advantages.square().mean()).item()


def _unsquared(advantages: Tensor, group_size: int) -> float:
    means = advantages.view(-1, group_size).mean(1)
    return (means.abs().mean() / advantages.abs().mean()).item()


def _sums(advantages: Tensor, group_size: int) -> float:
    sums = advantages.view(-1, group_size).sum(1)
    return (sums.square().mean() / advantages.square().mean()).item()


def _within(advantages: Tensor, group_size: int) -> float:
    return 1 - my_between(advantages, group_size)


def _absolute(advantages: Tensor, group_size: int) -> float:
    return advantages.view(-1, group_size).mean(1).square().mean().item()


def _draw(generator: Generator) -> Case:
    size, prompts = integer(generator, 2, 5), integer(generator, 2, 5)
    advantages = torch.randn(size * prompts, generator=generator, dtype=torch.float64)
    return Case({"advantages": advantages, "group_size": size})


def _case(advantages: list[float], group_size: int) -> Case:
    return Case(
        {
            "advantages": torch.tensor(advantages, dtype=torch.float64),
            "group_size": group_size,
        }
    )


BETWEEN = Exercise(
    id="diag-between",
    title="whose average was subtracted",
    concept="diagnosis",
    minutes=10,
    difficulty="core",
    statement=r"""
    A run subtracts the mean reward of a group, and the groups are wrong: rows that belong to several prompts are compared. The
    reward rises, and two seeds cannot tell it from a healthy run's. Write the check. `my_between(advantages, group_size)` takes $B$ advantages, not all 0, one a completion,
    the completions of a prompt next to each other, and returns which share of their mean square lies between prompts: the mean
    square of the prompts' mean advantages, divided by the mean square of all advantages.

    Predict first: what is it with a correct group baseline? And if the mean of the whole batch was subtracted, with four prompts
    of which two are always solved and two never?
    """,
    solution=my_between,
    cases=(
        _case([1.0, -1.0, 0.5, 0.5, 2.0, 0.0], 2),
        _case([1.0, 0.0, 2.0, 3.0, -1.0, 4.0], 3),
        _case([0.7, 0.7, 0.7, -0.3, -0.3, -0.3], 3),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _interleaved,
            "You take every group apart: completions of one prompt are next to each other.",
        ),
        Mistake(_unsquared, "Mean squares are asked for, and you compare mean sizes."),
        Mistake(_sums, "You square the sums of the prompts, not their means."),
        Mistake(_within, "That is what lies within prompts."),
        Mistake(
            _absolute, "That has the unit of an advantage, squared; a share has none."
        ),
        Mistake(
            given(
                my_between, advantages=lambda advantages: advantages - advantages.mean()
            ),
            "Do not subtract the mean of the batch first: a baseline that is off for all is off, too.",
        ),
    ),
    where="Reshape so that a row holds one prompt, and compare two mean squares.",
    idea="""
    Put one prompt into each row, `[P, G]`. The mean of each row is what lies between prompts: compare the mean
    square of these with that of all advantages.
    """,
    outline="""
    ```python
    means = ...  # [P]
    return (... / ...).item()
    ```
    """,
    right="Right. With the batch's mean and prompts that are always or never solved it is 1: nothing is left within.",
)
