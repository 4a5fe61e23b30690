"""What the next nat buys: the slope of gold over the KL at an optimum."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake


def my_slope(ref: Tensor, gold: Tensor, proxy: Tensor, beta: float) -> float:
    """[N] reference probabilities, gold, proxy -> gold gained per nat, at beta."""
    p = (ref.log() + proxy / beta).softmax(0)
    centred = proxy - p @ proxy
    return float(beta * (p @ (gold * centred)) / (p @ centred**2))


def _at_the_start(ref: Tensor, gold: Tensor, proxy: Tensor, beta: float) -> float:
    centred = proxy - ref @ proxy
    return float(beta * (ref @ (gold * centred)) / (ref @ centred**2))


def _without_beta(ref: Tensor, gold: Tensor, proxy: Tensor, beta: float) -> float:
    return my_slope(ref, gold, proxy, beta) / beta


def _divided(ref: Tensor, gold: Tensor, proxy: Tensor, beta: float) -> float:
    return my_slope(ref, gold, proxy, beta) / beta**2


def _correlation(ref: Tensor, gold: Tensor, proxy: Tensor, beta: float) -> float:
    p = (ref.log() + proxy / beta).softmax(0)
    g, r = gold - p @ gold, proxy - p @ proxy
    return float(beta * (p @ (g * r)) / ((p @ g**2) * (p @ r**2)).sqrt())


def _covariance(ref: Tensor, gold: Tensor, proxy: Tensor, beta: float) -> float:
    p = (ref.log() + proxy / beta).softmax(0)
    return float(p @ (gold * (proxy - p @ proxy)))


def _multiplied(ref: Tensor, gold: Tensor, proxy: Tensor, beta: float) -> float:
    p = (ref.log() + proxy * beta).softmax(0)
    centred = proxy - p @ proxy
    return float(beta * (p @ (gold * centred)) / (p @ centred**2))


def _case(generator: Generator, n: int, beta: float) -> Case:
    draw = torch.randn(3, n, generator=generator, dtype=torch.float64)
    return Case(
        {
            "ref": draw[0].softmax(0),
            "gold": 2 * draw[1],
            "proxy": draw[1] + draw[2],
            "beta": beta,
        }
    )


def _draw(generator: Generator) -> Case:
    beta = 0.3 + 2 * float(torch.rand((), generator=generator))
    return _case(generator, integer(generator, 3, 9), beta)


_FIXED = Generator().manual_seed(0)

SLOPE = Exercise(
    id="rlhf-slope",
    title="what the next nat buys",
    concept="reward-hacking",
    minutes=10,
    difficulty="core",
    statement=r"""
    Section 5 has the derivative of gold by $\eta$; that of the KL is $\eta\, \mathrm{Var}_\eta(R_\phi)$ (in depth). A budget of KL is spent best where
    gold per nat is highest. Write `my_slope(ref, gold, proxy, beta)` for one prompt with `[N]` completions: how much the mean gold
    score rises for one more nat of KL, at the optimum for `beta`. Predict first: what is it at the peak of gold, and where is it largest in the figure of section 5?
    """,
    solution=my_slope,
    cases=(
        _case(_FIXED, 4, 1.0),
        _case(_FIXED, 6, 0.5),
        _case(_FIXED, 8, 2.5),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _at_the_start,
            "The means are over the reference. They belong to the optimum for this beta.",
        ),
        Mistake(
            _without_beta,
            "The factor of section 5 is missing: the KL grows by eta times the variance.",
        ),
        Mistake(
            _divided,
            "You divided by beta where you should multiply: eta is 1 / beta.",
        ),
        Mistake(
            _correlation,
            "This is the correlation, which forgets the scale of gold. Divide by the variance of the proxy alone.",
        ),
        Mistake(
            _covariance, "This is the derivative by eta. Asked for is gold per nat."
        ),
        Mistake(
            _multiplied,
            "The optimum has the proxy divided by beta in its exponent, not multiplied.",
        ),
    ),
    where="Divide one derivative of section 5 by the other, with all means under the optimum.",
    idea=r"""
    By $\eta = 1/\beta$: the mean gold rises by the covariance of gold and proxy, and the KL by $\eta$ times
    the variance of the proxy. Both are taken under the policy for this $\beta$.
    """,
    outline="""
    ```python
    p = ...  # [N], the optimum for beta
    centred = ...  # the proxy minus its mean under p
    return float(... * (p @ ...) / (p @ ...))  # 1 / eta is a name you have
    ```
    """,
    right="Right. At the peak it is 0; near the reference it is large, since there the KL grows with the square of eta only.",
)
