"""What one token that jumps does to its neighbours' weights."""

import math

from torch import Generator

from ..draws import integer, uniform
from ..exercise import Case, Exercise, Mistake


def my_neighbour(
    jump: float, n: int, low: float, high: float, epsilon: float
) -> tuple[float, float, float]:
    """Weight of a token at rest beside one that jumped, A > 0: GRPO, GSPO, GMPO."""
    s = math.exp(jump / n)
    clipped = math.exp(min(jump, epsilon) / n)
    return 1.0, 0.0 if s > 1 + high else s, clipped


def _grpo_clips_all(
    jump: float, n: int, low: float, high: float, epsilon: float
) -> tuple[float, float, float]:
    one, two, three = my_neighbour(jump, n, low, high, epsilon)
    return (0.0 if math.exp(jump) > 1 + high else 1.0), two, three


def _unclipped_mean(
    jump: float, n: int, low: float, high: float, epsilon: float
) -> tuple[float, float, float]:
    one, two, _ = my_neighbour(jump, n, low, high, epsilon)
    return one, two, math.exp(jump / n)


def _both_sides(
    jump: float, n: int, low: float, high: float, epsilon: float
) -> tuple[float, float, float]:
    one, _, _ = my_neighbour(jump, n, low, high, epsilon)
    s = math.exp(jump / n)
    inside = 1 - low <= s <= 1 + high
    return one, s if inside else 0.0, math.exp(max(min(jump, epsilon), -epsilon) / n)


def _dropped_from_the_mean(
    jump: float, n: int, low: float, high: float, epsilon: float
) -> tuple[float, float, float]:
    one, two, three = my_neighbour(jump, n, low, high, epsilon)
    return one, two, 1.0 if jump > epsilon else three


def _edge(
    jump: float, n: int, low: float, high: float, epsilon: float
) -> tuple[float, float, float]:
    one, _, three = my_neighbour(jump, n, low, high, epsilon)
    return one, min(math.exp(jump / n), 1 + high), three


def _product(
    jump: float, n: int, low: float, high: float, epsilon: float
) -> tuple[float, float, float]:
    one, two, _ = my_neighbour(jump, n, low, high, epsilon)
    return one, two, math.exp(min(jump, epsilon))


def _draw(generator: Generator) -> Case:
    jump, low, high, epsilon = uniform(generator, 4).tolist()
    arguments = {
        "jump": 5 * jump - 2,
        "n": integer(generator, 2, 30),
        "low": 0.01 + 0.2 * low,
        "high": 0.01 + 0.2 * high,
        "epsilon": 0.1 + epsilon,
    }
    return Case(arguments)


NEIGHBOUR = Exercise(
    id="gates-neighbour",
    title="what a jump does to its neighbours",
    concept="gmpo",
    minutes=10,
    difficulty="core",
    statement=r"""
    A completion with $A > 0$ has `n` tokens; one of them has a log-ratio of `jump`, all others have not moved. Write
    `my_neighbour(jump, n, low, high, epsilon)`: the weight of one of the *others* in GRPO, in GSPO with the clip range `low`, `high`, and in
    GMPO with `epsilon` in the logarithm. Predict first: for a jump of 3 nats in 20 tokens, which of the three lets the neighbours count least, with GSPO's range at 0.03 and 0.04, and which at 0.2?
    """,
    solution=my_neighbour,
    cases=(
        Case({"jump": 3.0, "n": 20, "low": 0.03, "high": 0.04, "epsilon": 0.4}),
        Case({"jump": 0.3, "n": 10, "low": 0.2, "high": 0.2, "epsilon": 0.4}),
        Case({"jump": -2.0, "n": 4, "low": 0.1, "high": 0.1, "epsilon": 0.4}),
        Case({"jump": 1.0, "n": 8, "low": 0.2, "high": 0.2, "epsilon": 0.4}),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _grpo_clips_all,
            "GRPO decides for each token by itself: the neighbours' own ratios are 1.",
        ),
        Mistake(
            _unclipped_mean,
            "In GMPO the log-ratio that enters the mean is the clipped one.",
        ),
        Mistake(
            _both_sides,
            "For A > 0 only the upper bound acts: a good completion that has lost is not clipped.",
        ),
        Mistake(
            _dropped_from_the_mean,
            "A clipped token of GMPO has no gradient, and still stands in the mean, at the edge.",
        ),
        Mistake(
            _edge,
            "Beyond its bound GSPO's objective is constant: the neighbours have no gradient either.",
        ),
        Mistake(
            _product,
            "A mean of logarithms: the jump is shared out among the n tokens.",
        ),
    ),
    where="Write down s for each of the two sequence methods, and ask whether the bound acts before or after the mean.",
    idea=r"""
    GRPO looks at the neighbour's own ratio, which is 1. GSPO has $s = e^{\text{jump}/n}$ for all tokens, and a
    completion with $A > 0$ counts nothing above the upper bound. GMPO bounds each log-ratio *before* it takes the
    mean.
    """,
    outline="""
    ```python
    s = math.exp(...)
    clipped = math.exp(...)  # the jump is bounded first
    return 1.0, ... if s > 1 + high else ..., clipped
    ```
    """,
    right="Right. After 3 nats in 20 tokens the narrow GSPO drops the neighbours; with 0.2 it weighs them 1.16. GMPO weighs them 1.02 and GRPO 1.",
)
