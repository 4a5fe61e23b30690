"""What a row with MaxRL's advantage climbs."""

from torch import Generator

from ..draws import integer, uniform
from ..exercise import Case, Exercise, Mistake


def my_climbed(p: float, G: int) -> float:
    """The function of the pass rate whose gradient MaxRL follows, 0 at p = 0."""
    return sum((1 - (1 - p) ** k) / k for k in range(1, G))


def _one_more(p: float, G: int) -> float:
    return sum((1 - (1 - p) ** k) / k for k in range(1, G + 1))


def _log_from_zero(p: float, G: int) -> float:
    return p * (G - 1)


def _unweighted(p: float, G: int) -> float:
    return sum(1 - (1 - p) ** k for k in range(1, G))


def _pass_at_g(p: float, G: int) -> float:
    return 1 - (1 - p) ** G


def _not_zero(p: float, G: int) -> float:
    return -sum((1 - p) ** k / k for k in range(1, G))


def _weight(p: float, G: int) -> float:
    return (1 - (1 - p) ** (G - 1)) / p


def _draw(generator: Generator) -> Case:
    p = 0.02 + 0.96 * float(uniform(generator, 1))
    return Case({"p": p, "G": integer(generator, 2, 40)})


CLIMBS = Exercise(
    id="gates-climbs",
    title="what MaxRL climbs",
    concept="gate-gallery",
    minutes=15,
    difficulty="stretch",
    statement=r"""
    With $G$ completions MaxRL's weight is $\omega(p) = (1 - (1-p)^{G-1})/p$, so its expected update is the gradient of a function
    $F$ of the pass rate with $F' = \omega$. In an infinite group $F$ is $\log p$, up to a constant. Write `my_climbed(p, G)`, the $F$ of a finite group, with $F(0) = 0$.
    *Use:* a geometric series, $(1 - q^n)/(1 - q) = 1 + q + \dots + q^{n-1}$ with $q = 1 - p$. Do you know the terms of your sum by name?
    """,
    solution=my_climbed,
    cases=(
        Case({"p": 0.5, "G": 2}),
        Case({"p": 0.1, "G": 8}),
        Case({"p": 0.9, "G": 5}),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _one_more,
            "One term too many: how many terms does the geometric series of omega have?",
        ),
        Mistake(
            _log_from_zero,
            "That is the tangent at p = 0. The weight falls as p grows.",
        ),
        Mistake(
            _unweighted,
            "The terms are right and one factor is missing: integrate (1 - p) to a power.",
        ),
        Mistake(
            _pass_at_g,
            "That is one pass@k, and its weight is large only where p is small. MaxRL's weight at p = 1 is 1.",
        ),
        Mistake(_not_zero, "Right up to a constant: F(0) has to be 0."),
        Mistake(_weight, "That is the weight itself; its integral is asked for."),
    ),
    where="Write omega as a sum of powers of 1 - p, and integrate each from 0 to p.",
    idea=r"""
    With $q = 1 - p$ the weight is $(1 - q^{G-1})/(1 - q) = \sum_{j=0}^{G-2} q^j$. The integral of $(1-x)^j$ from 0
    to $p$ is $\big(1 - (1-p)^{j+1}\big)/(j+1)$.
    """,
    outline="""
    With $k = j + 1$ each term is the chance that at least one of $k$ completions is right, divided by a number:

    ```python
    return sum(... / ... for k in range(1, ...))
    ```
    """,
    right="Right: the sum of pass@k / k for k from 1 to G - 1, a sum of all pass@k with harmonic weights.",
)
