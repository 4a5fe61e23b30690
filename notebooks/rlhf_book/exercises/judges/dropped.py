"""What a completion gets in the mean if criteria are dropped at random before a z-score."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given


def my_mean_advantage(marks: Tensor, kept: int) -> Tensor:
    """[G, K] marks of a group -> [G]: the mean advantage over all choices."""
    choices = torch.combinations(torch.arange(marks.shape[1]), kept)  # [C, kept]
    total = torch.zeros(len(marks), dtype=marks.dtype)
    for chosen in choices:
        rewards = marks[:, chosen].sum(1)
        if rewards.max() > rewards.min():
            total += (rewards - rewards.mean()) / rewards.std()
    return total / len(choices)


def _z(rewards: Tensor, correction: int = 1) -> Tensor:
    if rewards.max() == rewards.min():
        return torch.zeros_like(rewards)
    return (rewards - rewards.mean()) / rewards.std(correction=correction)


def _all(marks: Tensor, kept: int) -> Tensor:
    return _z(marks.sum(1))


def _population(marks: Tensor, kept: int) -> Tensor:
    choices = torch.combinations(torch.arange(marks.shape[1]), kept)
    return torch.stack([_z(marks[:, c].sum(1), 0) for c in choices]).mean(0)


def _sum(marks: Tensor, kept: int) -> Tensor:
    choices = torch.combinations(torch.arange(marks.shape[1]), kept)
    return torch.stack([_z(marks[:, c].sum(1)) for c in choices]).sum(0)


def _centred(marks: Tensor, kept: int) -> Tensor:
    choices = torch.combinations(torch.arange(marks.shape[1]), kept)
    rewards = torch.stack([marks[:, c].sum(1) for c in choices])
    return (rewards - rewards.mean(1, keepdim=True)).mean(0)


def _again(marks: Tensor, kept: int) -> Tensor:
    choices = torch.combinations(
        torch.arange(marks.shape[1]), kept, with_replacement=True
    )
    return torch.stack([_z(marks[:, c].sum(1)) for c in choices]).mean(0)


def _of_dropped(marks: Tensor, kept: int) -> Tensor:
    return my_mean_advantage(marks, marks.shape[1] - kept)


def _without_constant(marks: Tensor, kept: int) -> Tensor:
    choices = torch.combinations(torch.arange(marks.shape[1]), kept)
    found = [_z(marks[:, c].sum(1)) for c in choices]
    alive = [x for x in found if x.any()]
    return torch.stack(alive).mean(0) if alive else torch.zeros_like(found[0])


def _draw(generator: Generator) -> Case:
    G, K = integer(generator, 3, 7), integer(generator, 3, 6)
    marks = torch.randint(0, 5, (G, K), generator=generator).double() / 2
    marks[:, 0] = (marks[:, 0] > 0.6).double()
    return Case({"marks": marks, "kept": integer(generator, 1, K)})


DROPPED = Exercise(
    id="judges-dropped",
    title="dropping criteria, in the mean",
    concept="rubric-dropout",
    minutes=12,
    difficulty="core",
    statement=r"""
    For each group of $G$ completions, exactly `kept` of the $K$ criteria are kept, every choice of them equally likely. The reward is the sum of
    the kept marks, and the advantage the group's z-score with the sample's standard deviation (divide by $G - 1$), no epsilon; it is 0 for all if
    the rewards of the group are equal. Write `my_mean_advantage(marks, kept)`: the mean advantage `[G]` over all choices, exactly.

    Predict first, for `kept` at 1: two criteria give 0 or 1, and the third one 0 to 5 points. In whose units is the mean advantage?
    """,
    solution=my_mean_advantage,
    cases=(
        Case(
            {
                "marks": torch.tensor(
                    [[1.0, 1.0, 2.0], [1.0, 0.0, 3.0], [0.0, 0.0, 5.0], [1.0, 1.0, 0.0]]
                ).double(),
                "kept": 2,
            }
        ),
        Case(
            {
                "marks": torch.tensor(
                    [
                        [1.0, 1.0, 0.5, 2.0],
                        [1.0, 0.0, 0.5, 3.0],
                        [1.0, 0.0, 1.0, 5.0],
                        [1.0, 1.0, 0.0, 0.0],
                        [1.0, 1.0, 0.0, 1.0],
                    ]
                ).double(),
                "kept": 1,
            },
            kind="a criterion that is equal for all",
        ),
        Case(
            {
                "marks": torch.tensor(
                    [[1.0, 0.0, 2.0, 0.5], [0.0, 1.0, 3.0, 0.0], [1.0, 1.0, 1.0, 1.0]]
                ).double(),
                "kept": 3,
            }
        ),
    ),
    draw=_draw,
    mistakes=(
        Mistake(_all, "Nothing is dropped: that is the z-score of the whole sum."),
        Mistake(
            _population,
            "You divide by the population's standard deviation; the sample's is asked for.",
        ),
        Mistake(_sum, "You add up over the choices. Asked is their mean."),
        Mistake(_centred, "The standard deviation of each choice is missing."),
        Mistake(
            given(my_mean_advantage, kept=1),
            "You keep one criterion, whatever `kept` says.",
        ),
        Mistake(
            _again, "A criterion cannot be kept twice: choices are without replacement."
        ),
        Mistake(_of_dropped, "You drop `kept` criteria. They are to be kept."),
        Mistake(
            _without_constant,
            "A choice in which all rewards are equal counts as well, with an advantage of 0.",
        ),
    ),
    where="First one choice: its rewards, and their z-score. Then all choices, each with the same chance.",
    idea="""
    `torch.combinations` lists the choices. The z-score is taken within each of them, before the mean over them: the two do
    not commute.
    """,
    outline="""
    ```python
    choices = torch.combinations(torch.arange(marks.shape[1]), ...)
    for chosen in choices:
        rewards = ...
        total += ...  # 0 if all rewards are equal
    return total / ...
    ```
    """,
    right="Right. Each choice is measured in its own standard deviation. With one criterion kept, points no longer count at all: a criterion of five points has the say of one that gives 0 or 1.",
)
