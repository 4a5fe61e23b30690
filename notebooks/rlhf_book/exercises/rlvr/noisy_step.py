"""What a noisy verifier leaves of the expected step, with and without the division by the group's spread."""

import math

import torch
from torch import Generator

from ..draws import integer
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given, swapped


def my_step_factor(p: float, a: float, b: float, G: int, divide: bool) -> float:
    """The number before the gradient of the true success rate, in the expected step."""
    q, gap = a + (1 - a - b) * p, 0.0
    for k in range(G):  # of the others in the group pass
        chance = math.comb(G - 1, k) * q**k * (1 - q) ** (G - 1 - k)
        if_passed, if_failed = 1 - (k + 1) / G, -k / G
        if divide:  # by the sample's spread of m ones among G; equals have none
            spreads = [math.sqrt(m * (G - m) / (G * (G - 1))) for m in (k + 1, k)]
            if_passed /= spreads[0] or math.inf
            if_failed /= spreads[1] or math.inf
        gap += chance * (if_passed - if_failed)
    return (1 - a - b) * gap


def _factor_alone(p: float, a: float, b: float, G: int, divide: bool) -> float:
    return (1 - a - b) * my_step_factor(p, 0.0, 0.0, G, divide)


def _rates_alone(p: float, a: float, b: float, G: int, divide: bool) -> float:
    return my_step_factor(a + (1 - a - b) * p, 0.0, 0.0, G, divide)


def _by_the_law(p: float, a: float, b: float, G: int, divide: bool) -> float:
    q = a + (1 - a - b) * p
    spread = math.sqrt(q * (1 - q)) if divide else 1.0
    return (1 - a - b) * (G - 1) / G / spread


def _population(p: float, a: float, b: float, G: int, divide: bool) -> float:
    scale = math.sqrt(G / (G - 1)) if divide else 1.0
    return scale * my_step_factor(p, a, b, G, divide)


def _whole_group(p: float, a: float, b: float, G: int, divide: bool) -> float:
    return my_step_factor(p, a, b, G, divide) * G / (G - 1)


def _draw(generator: Generator) -> Case:
    p, a, b = torch.rand(3, generator=generator).tolist()
    G = integer(generator, 2, 9)
    return _case(0.05 + 0.9 * p, 0.45 * a, 0.45 * b, G, integer(generator, 0, 3) > 0)


def _case(p: float, a: float, b: float, G: int, divide: bool) -> Case:
    return Case({"p": p, "a": a, "b": b, "G": G, "divide": divide})


NOISY_STEP = Exercise(
    id="rlvr-noisy-step",
    title="what a z-score makes of a noisy verifier",
    concept="rlvr",
    minutes=15,
    difficulty="stretch",
    statement=r"""
    Section 4 leaves a number in front of the gradient: $\delta$ times $1 - a - b$. Work out $\delta$ for the z-score of GRPO. Write
    `my_step_factor(p, a, b, G, divide)`: the number before $\nabla p$ in the expected step of one completion, where the prompt is
    solved with chance $p$, the verifier errs with rates $a$ and $b$, and the group has $G$ completions. With
    `divide=False` the advantage is the reward minus the group's mean. With `divide=True` it is divided by the group's sample
    standard deviation (over $G-1$, no epsilon), and a group of equals has advantage 0.

    Predict first: at $a = b = 0.2$ and $G = 8$, on which prompt does the noise take a larger part of the z-score's step, one
    with $p = 0.5$ or one with $p = 0.05$? And without the division?
    """,
    solution=my_step_factor,
    cases=(
        _case(0.05, 0.2, 0.1, 8, True),
        _case(0.5, 0.2, 0.1, 4, False),
        _case(0.7, 0.05, 0.3, 2, True),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            given(my_step_factor, a=0.0, b=0.0),
            "You leave the noise out: with these rates nothing changes.",
        ),
        Mistake(
            _factor_alone,
            "The group's spread is that of the verdicts, not of the truth. At which rate do verdicts pass?",
        ),
        Mistake(
            _rates_alone,
            "That is the number before the gradient of the pass rate. How does the pass rate move with the true one?",
        ),
        Mistake(
            given(my_step_factor, divide=False),
            "You do not divide by the spread when you should.",
        ),
        Mistake(
            _by_the_law,
            "You divide by the spread of the law. The group's own spread varies, and a group of equals gives nothing.",
        ),
        Mistake(_population, "Your standard deviation divides by G; take G - 1."),
        Mistake(
            swapped(my_step_factor, "a", "b"),
            "a is the rate of false positives, b that of false negatives.",
        ),
        Mistake(
            _whole_group,
            "Your baseline leaves the completion itself out, or your divisor is off by one.",
        ),
    ),
    where="Hold one verdict fixed, at 1 and then at 0: what is its mean advantage over what the others get?",
    idea="""
    The verifier passes with $q = a + (1 - a - b)p$. For a fixed completion let $k$ of the other $G - 1$ pass, with
    a binomial chance. Its advantage if it passes minus that if it fails, averaged over $k$, is the gap; the noise
    multiplies it by $1 - a - b$.
    """,
    outline="""
    ```python
    for k in range(G):
        chance = ...  # k of the G - 1 others pass
        if_passed, if_failed = ..., ...  # reward minus the mean of all G
        if divide:
            ...  # by the spread with k + 1 and with k ones; a group of equals gives 0
        gap += chance * ...
    return ... * gap
    ```
    """,
    right="Right. Under a z-score false positives cost hard prompts most, whose rare passes the division had made large.",
)
