"""How much mass a cut reverse KL with a part of its rest leaves on the tokens that it looks at."""

import math

from torch import Generator

from ..draws import uniform
from ..exercise import Case, Exercise, Mistake


def my_mass_left(teacher_mass: float, beta: float) -> float:
    """The mass on K with the smallest loss, a part beta of the rest included."""
    low, high = 0.0, 1.0
    for _ in range(200):
        a = (low + high) / 2
        slope = math.log(a / teacher_mass) + 1
        slope -= beta * (math.log((1 - a) / (1 - teacher_mass)) + 1)
        low, high = (a, high) if slope < 0 else (low, a)
    return a


def _cut(teacher_mass: float, beta: float) -> float:
    return teacher_mass / math.e


def _whole(teacher_mass: float, beta: float) -> float:
    return teacher_mass


def _mixed(teacher_mass: float, beta: float) -> float:
    return (1 - beta) * teacher_mass / math.e + beta * teacher_mass


def _plus(teacher_mass: float, beta: float) -> float:
    low, high = 0.0, 1.0
    for _ in range(200):
        a = (low + high) / 2
        slope = (
            math.log(a / teacher_mass)
            + 1
            - beta * math.log((1 - a) / (1 - teacher_mass))
        )
        low, high = (a, high) if slope < 0 else (low, a)
    return a


def _outside(teacher_mass: float, beta: float) -> float:
    return 1 - my_mass_left(teacher_mass, beta)


def _share(teacher_mass: float, beta: float) -> float:
    return my_mass_left(teacher_mass, beta) / teacher_mass


def _draw(generator: Generator) -> Case:
    a, b = uniform(generator, 2).tolist()
    return Case({"teacher_mass": 0.5 + 0.45 * a, "beta": 0.05 + 0.85 * b})


FLEE = Exercise(
    id="dist-mass-left",
    title="half a look at the rest",
    concept="distillation-estimators",
    minutes=15,
    difficulty="stretch",
    statement=r"""
    A set $K$ of tokens has the mass $U$ under the teacher and $a$ under the student, in the same proportions. The cut reverse KL is
    $a \log \frac aU$, that with a rest adds $(1 - a) \log \frac{1-a}{1-U}$. Put only a part $\beta$ of that into the loss:
    $a \log \frac aU + \beta (1 - a) \log \frac{1-a}{1-U}$. Predict the ends: where is the smallest value for $\beta = 0$ and
    for $\beta = 1$? Then write `my_mass_left(teacher_mass, beta)`: the $a$ with the smallest loss, for $0 < \beta < 1$.
    Set the derivative to 0; it grows with $a$, so an interval can be halved.
    """,
    solution=my_mass_left,
    cases=(
        Case({"teacher_mass": 0.9, "beta": 0.5}),
        Case({"teacher_mass": 0.7, "beta": 0.1}),
        Case({"teacher_mass": 0.95, "beta": 0.9}),
    ),
    draw=_draw,
    mistakes=(
        Mistake(_outside, "That is what stands outside of the set."),
        Mistake(
            _share, "You have divided by the teacher's mass. Asked is the mass itself."
        ),
        Mistake(_cut, "That is the end without the rest, beta 0."),
        Mistake(_whole, "That is the end with the whole rest, beta 1."),
        Mistake(
            _mixed,
            "You mix the two ends. The minimum of a sum is not the mixture of the minima.",
        ),
        Mistake(
            _plus, "The rest's derivative has a 1, too, times beta and with its sign."
        ),
    ),
    where="The derivative is log(a/U) + 1 - beta (log((1-a)/(1-U)) + 1).",
    idea="""
    The derivative is negative to the left of the minimum and positive to its right. Halve: where it is negative in
    the middle, the minimum lies to the right.
    """,
    outline="""
    ```python
    low, high = 0.0, 1.0
    for _ in range(200):
        a = ...
        slope = ... + 1
        slope -= beta * (... + 1)
        low, high = ... if slope < 0 else ...
    ```
    """,
    right="Right. A little weight on the rest holds little: at 0.1 and U = 0.9 half of the mass still flees. It takes about 0.5 to hold most of it.",
)
