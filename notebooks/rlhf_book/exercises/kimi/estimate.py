"""What an estimate of tau log Z from K rewards gives on average."""

import math

from torch import Generator

from ..draws import integer, uniform
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given


def my_expected_estimate(p: float, K: int, tau: float) -> float:
    """Mean over K draws, right with chance p, of tau log mean exp(R / tau)."""
    total = 0.0
    for k in range(K + 1):
        chance = math.comb(K, k) * p**k * (1 - p) ** (K - k)
        total += chance * tau * math.log(1 + k / K * math.expm1(1 / tau))
    return total


def _true(p: float, K: int, tau: float) -> float:
    return tau * math.log(1 + p * math.expm1(1 / tau))


def _mean_reward(p: float, K: int, tau: float) -> float:
    return p


def _orders(p: float, K: int, tau: float) -> float:
    return sum(
        p**k * (1 - p) ** (K - k) * tau * math.log(1 + k / K * math.expm1(1 / tau))
        for k in range(K + 1)
    )


def _no_tau(p: float, K: int, tau: float) -> float:
    return my_expected_estimate(p, K, tau) / tau


def _sum_inside(p: float, K: int, tau: float) -> float:
    return my_expected_estimate(p, K, tau) + tau * math.log(K)


def _wrong_count_nothing(p: float, K: int, tau: float) -> float:
    """The wrong ones have exp(0) = 1, not 0."""
    return sum(
        math.comb(K, k) * p**k * (1 - p) ** (K - k) * (1 + tau * math.log(k / K))
        for k in range(1, K + 1)
    )


def _draw(generator: Generator) -> Case:
    p, tau = (float(x) for x in uniform(generator, 2))
    return Case(
        {"p": 0.05 + 0.9 * p, "K": integer(generator, 1, 17), "tau": 0.1 + 2 * tau}
    )


ESTIMATE = Exercise(
    id="kimi-estimate",
    title="an estimate of log Z from few samples",
    concept="kimi-k2",
    minutes=15,
    difficulty="core",
    statement=r"""
    K1.5 gives $\tau \log \frac1K \sum_j e^{R_j/\tau}$ as an estimate of $\tau \log Z$ from $K$ completions. Rewards are 1
    with probability $p$ and else 0. Write `my_expected_estimate(p, K, tau)`: the exact mean of this estimate. Predict first, for $p = 0.1$ and
    $\tau = 0.1$: how many completions bring it within 0.05 of $\tau \log Z$?
    """,
    solution=my_expected_estimate,
    cases=(
        Case({"p": 0.1, "K": 8, "tau": 0.1}),
        Case({"p": 0.5, "K": 1, "tau": 0.5}),
        Case({"p": 0.5, "K": 4, "tau": 1.0}),
        Case({"p": 0.9, "K": 16, "tau": 0.2}),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _true,
            "That is tau log Z itself, which needs no samples. The logarithm of a noisy mean is smaller on average.",
        ),
        Mistake(_mean_reward, "That is the mean reward, the other estimate."),
        Mistake(
            _orders,
            "Your chances do not sum to 1: the right completions may stand at any place among the K.",
        ),
        Mistake(_no_tau, "The estimate has the unit of a reward: tau is missing."),
        Mistake(
            _sum_inside,
            "The logarithm is of a mean over the K completions, and yours is of a sum.",
        ),
        Mistake(
            _wrong_count_nothing,
            "A wrong completion has a reward of 0, and the exponential of 0 is not 0.",
        ),
        Mistake(
            given(my_expected_estimate, K=lambda K: K + 1),
            "You count one completion too many.",
        ),
        Mistake(
            given(my_expected_estimate, tau=1.0), "Your answer does not depend on tau."
        ),
    ),
    where="The estimate depends only on how many of the K completions are right.",
    idea=r"""
    With $k$ of $K$ right the estimate is $\tau \log\big(\frac kK e^{1/\tau} + 1 - \frac kK\big)$. Its mean is a sum
    over $k$, weighted with the binomial chances.
    """,
    outline="""
    ```python
    for k in range(K + 1):
        chance = ...  # that k of K are right
        total += chance * ...  # the estimate then
    ```
    """,
    right="Right. With K = 1 the estimate is the reward itself, and with any finite K it lies between the mean reward and "
    "the true constant. At p = 0.1 and tau = 0.1 the constant is 0.770 and the mean estimate 0.466 with 8 completions, "
    "0.633 with 16; it takes 28 to come within 0.05.",
)
