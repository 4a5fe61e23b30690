"""How far DPPO's binary KL lets a probability rise."""

import math
from collections.abc import Callable

from torch import Generator

from ..draws import uniform
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given


def my_reach(p: float, delta: float) -> float:
    """The largest q whose KL from p, for "this token or another", is at most delta."""
    low, high = p, 1.0
    for _ in range(60):
        q = (low + high) / 2
        kl = p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))
        low, high = (q, high) if kl <= delta else (low, q)
    return low


def _bisect(p: float, delta: float, kl: Callable[[float, float], float]) -> float:
    low, high = p, 1.0
    for _ in range(60):
        q = (low + high) / 2
        low, high = (q, high) if kl(p, q) <= delta else (low, q)
    return low


def _other_direction(p: float, delta: float) -> float:
    def kl(p: float, q: float) -> float:
        return q * math.log(q / p) + (1 - q) * math.log((1 - q) / (1 - p))

    return _bisect(p, delta, kl)


def _square(p: float, delta: float) -> float:
    return min(1.0, p + math.sqrt(2 * delta * p * (1 - p)))


def _difference(p: float, delta: float) -> float:
    return min(1.0, p + delta)


def _ratio(p: float, delta: float) -> float:
    return my_reach(p, delta) / p


def _exponential(p: float, delta: float) -> float:
    return min(1.0, p * math.exp(delta))


def _downwards(p: float, delta: float) -> float:
    low, high = 0.0, p
    for _ in range(200):
        q = (low + high) / 2
        kl = p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))
        low, high = (low, q) if kl <= delta else (q, high)
    return high


def _draw(generator: Generator) -> Case:
    a, b = uniform(generator, 2).tolist()
    return Case({"p": 0.002 + 0.95 * a, "delta": 0.005 + 0.2 * b})


REACH = Exercise(
    id="off-reach",
    title="how far may a probability rise?",
    concept="probability-not-ratio",
    minutes=15,
    difficulty="stretch",
    statement=r"""
    DPPO's other form measures a token's move by the KL divergence between two outcomes, "this token" and "any other":
    $p \log \frac pq + (1 - p) \log \frac{1-p}{1-q}$, where $p$ is its probability when it was sampled and $q$ its probability now. A
    good token is left out once this is above $\delta$ and $q > p$. Predict: for $\delta = 0.05$, may a token of probability 0.001 rise
    to 0.01? Then write `my_reach(p, delta)`, the largest $q \ge p$ that is still trained on. There is no closed form; halve
    an interval.
    """,
    solution=my_reach,
    cases=(
        Case({"p": 0.001, "delta": 0.05}),
        Case({"p": 0.5, "delta": 0.05}),
        Case({"p": 0.9, "delta": 0.02}),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _other_direction,
            "That is the other direction of the divergence: the samples came from p.",
        ),
        Mistake(
            _square,
            "That is the parabola near p. It is far off for rare tokens, which may move by many times themselves.",
        ),
        Mistake(
            _difference, "That is DPPO's first form, a difference of probabilities."
        ),
        Mistake(_ratio, "You return the ratio. Asked is the probability."),
        Mistake(
            _exponential,
            "You bound the log-ratio alone. What do the other tokens lose?",
        ),
        Mistake(_downwards, "You went down. A good token rises."),
        Mistake(
            given(my_reach, delta=lambda delta: 2 * delta), "Your bound is twice delta."
        ),
    ),
    where="The divergence is 0 at q = p and rises with q. Keep an interval whose lower end is allowed and whose upper end is not.",
    idea="""
    Write the divergence as a function of $q$ at fixed $p$. Keep `low` allowed and `high` not allowed, look at the
    middle, and move the end that it replaces.
    """,
    outline="""
    ```python
    low, high = p, 1.0
    for _ in range(60):
        q = ...
        kl = ...  # two outcomes: this token, any other
        low, high = ... if kl <= delta else ...
    return low
    ```
    """,
    right="Right. Compare the ratio q / p for p = 0.001 and p = 0.5 with a clip range of 0.2.",
)
