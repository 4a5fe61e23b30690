"""What skipping the backward of groups without a signal saves."""

import torch
from torch import Generator, Tensor

from ..draws import integer, uniform
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given


def my_saved_share(p: Tensor, group_size: int) -> Tensor:
    """Probabilities p [P] of being right -> scalar: the expected share saved."""
    idle = (p**group_size + (1 - p) ** group_size).mean()
    return 2 * idle / 3


def _everything(p: Tensor, group_size: int) -> Tensor:
    return 1.5 * my_saved_share(p, group_size)


def _half(p: Tensor, group_size: int) -> Tensor:
    return 0.75 * my_saved_share(p, group_size)


def _third(p: Tensor, group_size: int) -> Tensor:
    return 0.5 * my_saved_share(p, group_size)


def _all_wrong(p: Tensor, group_size: int) -> Tensor:
    return 2 / 3 * ((1 - p) ** group_size).mean()


def _all_right(p: Tensor, group_size: int) -> Tensor:
    return 2 / 3 * (p**group_size).mean()


def _left(p: Tensor, group_size: int) -> Tensor:
    return 1 - my_saved_share(p, group_size)


def _faster(p: Tensor, group_size: int) -> Tensor:
    return 1 / (1 - my_saved_share(p, group_size))


def _each(p: Tensor, group_size: int) -> Tensor:
    return 2 / 3 * (p**group_size + (1 - p) ** group_size)


def _draw(generator: Generator) -> Case:
    return Case(
        {
            "p": uniform(generator, integer(generator, 2, 9)),
            "group_size": integer(generator, 2, 17),
        }
    )


IDLE = Exercise(
    id="fast-idle",
    title="what an idle row saves",
    concept="idle-rows",
    minutes=5,
    difficulty="warm-up",
    statement=r"""
    A completion of prompt $j$ is right with probability $p_j$; a group of $G$ that agrees has advantage 0. Its rows
    are still read forward, for the metrics, but no backward goes through them. Take the work of a forward as 1 and
    that of its backward as 2. Write `my_saved_share(p, group_size)`: `p` is `[P]`, all completions are equally long,
    and the result is the expected share of the update's work that is saved. Then try $p = 0.02$ and $p = 0.5$ with $G
    = 8$: when does this means pay most?
    """,
    solution=my_saved_share,
    cases=(
        Case({"p": torch.tensor([0.1, 0.5]), "group_size": 4}),
        Case({"p": torch.tensor([0.02]), "group_size": 8}),
        Case({"p": torch.tensor([0.9, 0.2, 1.0]), "group_size": 3}),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _everything,
            "This is the share of idle groups: their forward is still paid for.",
        ),
        Mistake(
            _half,
            "A backward costs twice its forward, since each product has two gradients.",
        ),
        Mistake(
            _third,
            "You saved the forward. What is saved is the backward, and it is twice as much.",
        ),
        Mistake(
            _all_wrong,
            "You count the groups in which all are wrong. What about those where all are right?",
        ),
        Mistake(
            _all_right,
            "You count the groups in which all are right. What about those where all are wrong?",
        ),
        Mistake(
            given(my_saved_share, p=lambda p: p.mean()[None]),
            "You average p first. Idle groups come from the extremes: each prompt counts by itself.",
        ),
        Mistake(_left, "This is the share that is left."),
        Mistake(
            _faster,
            "This is how many times faster the update becomes. The exercise asks for the share saved.",
        ),
        Mistake(_each, "One number a prompt: the exercise asks for the whole update."),
    ),
    where="Let all groups be idle: the forward is still there.",
    idea="""
    A full update costs 1 + 2. An idle group saves its 2. The expected share of idle groups is the mean over prompts
    of the chance that all are right or all wrong.
    """,
    outline="""
    ```python
    idle = ...  # scalar, between 0 and 1
    return ... * idle / ...
    ```
    """,
    right="Right. It pays most at the beginning and at the end of training, where hardly any group disagrees.",
)
