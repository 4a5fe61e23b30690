"""How many rollouts the upper bound asks of a rare token."""

import math

from torch import Generator

from ..draws import uniform
from ..exercise import Case, Exercise, Mistake


def my_rollouts(p: float, target: float, high: float) -> int:
    """Rollouts until p has grown to target, if each one ends at the upper bound."""
    return max(0, math.ceil(math.log(target / p) / math.log1p(high) - 1e-9))


def _linear(p: float, target: float, high: float) -> int:
    return max(0, math.ceil((target - p) / (high * p) - 1e-9))


def _absolute(p: float, target: float, high: float) -> int:
    return max(0, math.ceil((target - p) / high - 1e-9))


def _down(p: float, target: float, high: float) -> int:
    return max(0, math.floor(math.log(target / p) / math.log1p(high) + 1e-9))


def _ratio_alone(p: float, target: float, high: float) -> int:
    return max(0, math.ceil(math.log(target / p) / high - 1e-9))


def _odds(p: float, target: float, high: float) -> int:
    odds = target / (1 - target) * (1 - p) / p
    return max(0, math.ceil(math.log(odds) / math.log1p(high) - 1e-9))


def _doublings(p: float, target: float, high: float) -> int:
    return max(0, math.ceil(math.log2(target / p) - 1e-9))


def _draw(generator: Generator) -> Case:
    a, b, c = (float(x) for x in uniform(generator, 3))
    p = 0.001 + 0.1 * a
    return Case(
        {"p": p, "target": p + (0.95 - p) * (0.05 + 0.9 * b), "high": 0.05 + 0.5 * c}
    )


ROOM = Exercise(
    id="dapo-rollouts",
    title="how long a rare token waits",
    concept="clip-higher",
    minutes=10,
    difficulty="core",
    statement=r"""
    A token has the probability `p` and should get to `target`. Every rollout pushes it up until its ratio stands at
    the upper bound, and stops there. Write `my_rollouts(p, target, high)`: the number of rollouts, a whole number, after
    which its probability is at least `target`; 0 if it is there already. Before you run it, guess how many of them 0.28
    saves, compared with 0.2, on the way from 0.001 to 0.5.
    """,
    solution=my_rollouts,
    cases=(
        Case({"p": 0.001, "target": 0.5, "high": 0.2}),
        Case({"p": 0.001, "target": 0.5, "high": 0.28}),
        Case({"p": 0.25, "target": 0.5, "high": 1.0}),
        Case({"p": 0.6, "target": 0.5, "high": 0.2}),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _linear,
            "You let it gain the same amount in every rollout. The next rollout's bound is relative to where the token has "
            "got by then.",
        ),
        Mistake(
            _absolute,
            "The bound is on the ratio, not on the difference of two probabilities.",
        ),
        Mistake(_down, "You round down: after that many rollouts it is not there yet."),
        Mistake(
            _ratio_alone,
            "You take the bound for a bound on the log-ratio. Which log-ratio belongs to a ratio of 1.2?",
        ),
        Mistake(
            _doublings,
            "You count doublings. By what does the bound let a probability grow?",
        ),
        Mistake(
            _odds, "The bound holds the ratio of probabilities, not that of the odds."
        ),
    ),
    where="After n rollouts the probability is p times a power. Which n makes it large enough?",
    idea=r"""
    After $n$ rollouts the probability is $p\,(1 + \text{high})^n$. Take logarithms and solve for $n$, then round in
    the direction that reaches the target. Where the target is reached already, the answer is 0.
    """,
    outline="""
    ```python
    rollouts = math.log(...) / math.log1p(...)
    return max(0, ...)  # a whole number; a hair of tolerance against rounding
    ```
    """,
    right="Right. A bound is a growth rate, so the wait grows with the logarithm of what is missing. What does a larger step size change?",
)
