"""How many seeds separate a difference."""

import torch
from torch import Generator, Tensor

from rlhf_minimal.evaluate import t_quantile

from ..draws import integer
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given

TABLE = torch.tensor(
    [t_quantile(degrees) for degrees in range(200)], dtype=torch.float64
)


def my_seeds(gap: float, spread: float, t: Tensor) -> int:
    """Mean and spread of paired differences -> seeds until they separate."""
    n = 2
    while t[n - 1] * spread / n**0.5 >= gap:
        n += 1
    return n


def _degrees(gap: float, spread: float, t: Tensor) -> int:
    n = 2
    while t[n] * spread / n**0.5 >= gap:
        n += 1
    return n


def _draw(generator: Generator) -> Case:
    ratio = 0.3 + 2.2 * torch.rand(1, generator=generator).item()
    gap = 0.01 * integer(generator, 1, 9)
    return Case({"gap": gap, "spread": ratio * gap, "t": TABLE})


SEEDS = Exercise(
    id="choose-seeds",
    title="seeds for a gap of this size",
    concept="decision-guide",
    minutes=5,
    difficulty="core",
    statement=r"""
    A pilot of two arms gave paired differences with mean `gap` $> 0$ and standard deviation `spread`. Suppose that both stay as they are.
    Write `my_seeds(gap, spread, t)`: the smallest number of seeds, two at least, whose 95 % interval leaves 0 out. `t[k]` is the quantile
    of Student's t with $k$ degrees of freedom (2.776 at 4).

    (It is a plan, and a hopeful one: a repeat with so many seeds separates about half the time. And whoever adds seeds
    until it does has made many tests.)

    Predict first: for a gap as large as the spread, how many? For a gap of half the spread? Do five seeds see either?
    """,
    solution=my_seeds,
    cases=(
        Case({"gap": 0.02, "spread": 0.02, "t": TABLE}),
        Case({"gap": 0.01, "spread": 0.02, "t": TABLE}),
        Case({"gap": 0.05, "spread": 0.02, "t": TABLE}),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            given(my_seeds, t=lambda t: torch.full_like(t, 1.96)),
            "At few seeds Student's quantile is far above 1.96.",
        ),
        Mistake(_degrees, "The mean takes one degree of freedom."),
        Mistake(
            given(my_seeds, spread=lambda spread: 2**0.5 * spread),
            "The spread is of differences; both arms are in it.",
        ),
        Mistake(
            given(my_seeds, gap=lambda gap: 2 * gap),
            "The gap has to be beyond half of the interval's width.",
        ),
        Mistake(
            given(my_seeds, t=torch.ones_like),
            "That is one standard error, about two thirds.",
        ),
        Mistake(
            given(my_seeds, spread=lambda spread: spread**2),
            "The standard error has the spread, not its square.",
        ),
    ),
    where="The interval's half width is t times the spread over the root of the number; try one number after the other.",
    idea=r"""
    With $n$ seeds the half width is $t_{n-1} \cdot \text{spread}/\sqrt n$. Begin at 2 and go on while the interval
    still holds 0.
    """,
    outline="""
    ```python
    n = 2
    while ... >= gap:
        n += 1
    return n
    ```
    """,
    right="Right. Seven for a gap of one spread, eighteen for half of one: five seeds see only what is 1.24 spreads large. With these numbers the interval leaves 0 out about half of the time; for 80 % take about 10 and 34.",
)
