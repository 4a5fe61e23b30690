"""What the maximum of the others adds to the noise."""

import torch
from torch import Generator

from ..draws import integer
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given


def my_added(p: float, group_size: int) -> float:
    """Success rate, G -> the mean of (b - p)^2 over p (1 - p), b: their maximum."""
    one_right = 1 - (1 - p) ** (group_size - 1)
    error = one_right * (1 - p) ** 2 + (1 - one_right) * p**2
    return error / (p * (1 - p))


def _variance_alone(p: float, group_size: int) -> float:
    one_right = 1 - (1 - p) ** (group_size - 1)
    return one_right * (1 - one_right) / (p * (1 - p))


def _not_divided(p: float, group_size: int) -> float:
    return my_added(p, group_size) * p * (1 - p)


def _mean(p: float, group_size: int) -> float:
    return 1 / (group_size - 1)


def _of_its_mean(p: float, group_size: int) -> float:
    return (1 - (1 - p) ** (group_size - 1) - p) ** 2 / (p * (1 - p))


def _draw(generator: Generator) -> Case:
    p = 0.05 + 0.9 * torch.rand((), generator=generator).item()
    return Case({"p": p, "group_size": integer(generator, 3, 9)})


MAXIMUM = Exercise(
    id="rloo-maximum",
    title="the best of the others",
    concept="rloo",
    minutes=10,
    difficulty="core",
    statement=r"""
    The *maximum* of the others has no bias either. Rewards are 0 and 1, right with probability $p$. Write
    `my_added`: the noise that this baseline adds in the sense of the picture in section 5, $\mathbb E[(b - p)^2]$
    in units of $p(1-p)$. (For the mean of the others it is $1/(G-1)$.) Predict first: for which prompts can the maximum
    be *better* than the mean, for hard or for easy ones?
    """,
    solution=my_added,
    cases=(
        Case({"p": 0.9, "group_size": 4}),
        Case({"p": 0.1, "group_size": 4}),
        Case({"p": 0.5, "group_size": 3}),
        Case({"p": 0.99, "group_size": 8}),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            given(my_added, group_size=lambda group_size: group_size + 1),
            "You take the maximum over the whole group. Its own reward must not be in it.",
        ),
        Mistake(
            _variance_alone,
            "You have the variance of the maximum. It is not centred on p: its distance from p counts.",
        ),
        Mistake(
            given(my_added, p=lambda p: 1 - p),
            "When is the maximum of several rewards 0? Only if all of them are.",
        ),
        Mistake(
            _not_divided, "In units of p (1 - p), please: the variance of one reward."
        ),
        Mistake(_mean, "That is what the mean of the others adds."),
        Mistake(
            _of_its_mean,
            "You compare the maximum's mean with p. The maximum itself is 0 or 1.",
        ),
    ),
    where="The maximum is 1 if at least one of the G - 1 others is right. With which probability, and how far is it then from p?",
    idea=r"""
    The baseline $b$ is 0 or 1. Call $m$ the probability that it is 1. Then $\mathbb E[(b-p)^2]$ has two terms, one
    for each value of $b$. The unit is the variance of one reward.
    """,
    outline="""
    ```python
    one_right = 1 - ...  # not all of the others are wrong
    error = one_right * ... + (1 - one_right) * ...
    return error / ...
    ```
    """,
    right="Right. Where the squared norm of a score is independent of the reward it is worse than the mean on hard prompts and better on easy ones: for G = 4 from p = 0.77 on.",
)
