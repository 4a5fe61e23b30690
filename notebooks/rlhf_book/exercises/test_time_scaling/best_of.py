"""How far the best of n by a verifier moves from the policy."""

import math

from torch import Generator

from ..draws import integer, uniform
from ..exercise import Case, Exercise, Mistake


def my_verified_best(p: float, n: int) -> tuple[float, float]:
    """Share right of the verified best of n, and its KL in nats."""
    wrong = (1 - p) ** n
    right = 1 - wrong
    return right, right * math.log(right / p) + wrong * (n - 1) * math.log(1 - p)


def _formula(p: float, n: int) -> tuple[float, float]:
    return my_verified_best(p, n)[0], math.log(n) - (n - 1) / n


def _reversed(p: float, n: int) -> tuple[float, float]:
    q, _ = my_verified_best(p, n)
    return q, p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))


def _only_right(p: float, n: int) -> tuple[float, float]:
    q, _ = my_verified_best(p, n)
    return q, q * math.log(q / p)


def _log_n(p: float, n: int) -> tuple[float, float]:
    return my_verified_best(p, n)[0], math.log(n)


def _linear(p: float, n: int) -> tuple[float, float]:
    q = min(n * p, 1 - 1e-9)
    return q, q * math.log(q / p) + (1 - q) * math.log((1 - q) / (1 - p))


def _limit(p: float, n: int) -> tuple[float, float]:
    return my_verified_best(p, n)[0], math.log(1 / p)


def _draw(generator: Generator) -> Case:
    p = 0.05 + 0.8 * uniform(generator, 1).item()
    return Case({"p": p, "n": integer(generator, 2, 9)})


BEST_OF = Exercise(
    id="tts-verified-best",
    title="a verifier does not go far",
    concept="test-time-scaling",
    minutes=10,
    difficulty="core",
    statement=r"""
    The best of $n$ is at most $\log n - (n-1)/n$ nats from the policy, and less where scores tie. A verifier knows two
    scores only, right and wrong, and among equals the first is taken. One completion is right with probability $p$, $0 < p < 1$.
    Write `my_verified_best(p, n)`: the share right of the best of $n$, and its exact KL from the policy in nats.

    Predict first: at $p = 0.2$, what becomes of this KL as $n$ grows without end, and what of the bound?
    """,
    solution=my_verified_best,
    cases=(
        Case({"p": 0.2, "n": 4}),
        Case({"p": 0.05, "n": 2}),
        Case({"p": 0.6, "n": 8}),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _formula,
            "That is the bound for scores that all differ. Two scores leave most completions tied.",
        ),
        Mistake(
            _reversed,
            "You take the mean under the policy. It belongs under the law of what is kept.",
        ),
        Mistake(
            _only_right, "The wrong completions have become rarer. They count as well."
        ),
        Mistake(
            _log_n,
            "log n is an upper bound of the bound: the density is at most n times as large.",
        ),
        Mistake(
            _linear, "n p is the expected number of right ones, not the chance of one."
        ),
        Mistake(_limit, "That is the limit for large n."),
    ),
    where="Among right completions nothing changes, and among wrong ones neither: only the two totals move.",
    idea=r"""
    The best is wrong only if all $n$ are: $(1-p)^n$. The KL is that of two coins, because within the right and
    within the wrong ones nothing is rearranged. $\log\big((1-p)^n/(1-p)\big)$ is a multiple of $\log(1-p)$.
    """,
    outline="""
    ```python
    wrong = ...
    right = 1 - wrong
    return right, right * math.log(...) + wrong * ...
    ```
    """,
    right="Right. It tends to log(1/p), what it takes to keep the right ones alone, however large n becomes.",
)
