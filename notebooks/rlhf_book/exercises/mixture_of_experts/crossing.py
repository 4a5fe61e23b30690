"""The length of an update at which flips and smooth change are equally wide."""

import torch
from torch import Generator, Tensor

from ..draws import uniform
from ..exercise import Case, Exercise, Mistake


def my_crossing(share: Tensor, jump: Tensor, slope: Tensor) -> Tensor:
    """[N] each -> [N]: the length at which both parts have one spread."""
    return share * jump**2 / slope**2


def _spreads(share: Tensor, jump: Tensor, slope: Tensor) -> Tensor:
    return share * jump / slope


def _root(share: Tensor, jump: Tensor, slope: Tensor) -> Tensor:
    return share**0.5 * jump / slope


def _inverse(share: Tensor, jump: Tensor, slope: Tensor) -> Tensor:
    return slope**2 / (share * jump**2)


def _no_share(share: Tensor, jump: Tensor, slope: Tensor) -> Tensor:
    return (jump / slope) ** 2


def _share_squared(share: Tensor, jump: Tensor, slope: Tensor) -> Tensor:
    return (share * jump / slope) ** 2


def _half_squared(share: Tensor, jump: Tensor, slope: Tensor) -> Tensor:
    return share * jump**2 / slope


def _draw(generator: Generator) -> Case:
    return Case(
        {name: 0.05 + uniform(generator, 3) for name in ("share", "jump", "slope")}
    )


def _case(share: list[float], jump: list[float], slope: list[float]) -> Case:
    given = {"share": share, "jump": jump, "slope": slope}
    return Case(
        {name: torch.tensor(x, dtype=torch.float64) for name, x in given.items()}
    )


CROSSING = Exercise(
    id="moe-crossing",
    title="where flips begin to matter",
    concept="moe",
    minutes=10,
    difficulty="core",
    statement=r"""
    With an update of length $\eta$ a share `share` $\cdot\, \eta$ of the tokens has a flip, which moves the log-prob by a number
    with the root mean square `jump`. All else moves it by $\eta$ times a number with the root mean square `slope`; both have the mean 0. Write
    `my_crossing(share, jump, slope)`: the $\eta$ at which the two parts have the same standard deviation. All are `[N]`.
    """,
    solution=my_crossing,
    cases=(
        _case([0.1], [0.5], [1.0]),
        _case([0.1, 0.8], [0.5, 0.1], [0.1, 2.0]),
        _case([1.0], [1.0], [3.0]),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _spreads,
            "You compare a mean size with a standard deviation. Write both variances first.",
        ),
        Mistake(
            _root,
            "That is the square root of the answer: which powers of the length do you compare?",
        ),
        Mistake(
            _inverse,
            "Upside down: more and larger flips make the range longer in which they rule.",
        ),
        Mistake(
            _half_squared,
            "One side is a variance and the other is not: square the slope as well.",
        ),
        Mistake(_no_share, "The share of tokens with a flip is missing."),
        Mistake(
            _share_squared,
            "The share enters once: the variance of a rare jump is its probability times its square.",
        ),
    ),
    where="The variance of the flips is share times eta times jump squared. And the other one?",
    idea=r"""
    The flips move a share of the tokens by numbers whose mean square is jump²: their variance is $\text{share}
    \cdot \eta \cdot \text{jump}^2$, linear in $\eta$. The other part has the variance $\eta^2\, \text{slope}^2$.
    Set the two equal, and one $\eta$ cancels.
    """,
    outline=r"""
    Write both variances on one line with an equals sign between them, divide by $\eta$, and solve for it. Which of
    the three numbers stand above the fraction?
    """,
    right="Right. Below this length flips are most of the spread. Training at a smaller learning rate goes into that range.",
)
