"""The chance that every one of k completions is right."""

import math

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake


def my_all_right(right: Tensor, n: int, k: int) -> Tensor:
    """[P] right ones among n -> [P]: the chance that k new ones are all right."""
    chances = [math.comb(c, k) / math.comb(n, k) for c in right.tolist()]
    return torch.tensor(chances, dtype=torch.float64)


def _plug_in(right: Tensor, n: int, k: int) -> Tensor:
    return (right.double() / n) ** k


def _one_of(right: Tensor, n: int, k: int) -> Tensor:
    return 1 - my_all_right(n - right, n, k)


def _all_wrong(right: Tensor, n: int, k: int) -> Tensor:
    return my_all_right(n - right, n, k)


def _not_all(right: Tensor, n: int, k: int) -> Tensor:
    return 1 - my_all_right(right, n, k)


def _averaged(right: Tensor, n: int, k: int) -> Tensor:
    return my_all_right(right, n, k).mean()


def _of_the_right(right: Tensor, n: int, k: int) -> Tensor:
    chances = [math.comb(c, k) / max(c, 1) for c in right.tolist()]
    return torch.tensor(chances, dtype=torch.float64)


def _draw(generator: Generator) -> Case:
    n = integer(generator, 2, 12)
    k = integer(generator, 1, n + 1)
    right = torch.randint(0, n + 1, (5,), generator=generator)
    return Case({"right": right, "n": n, "k": k})


ALL_OF = Exercise(
    id="tts-all-right",
    title="right every time",
    concept="test-time-scaling",
    minutes=10,
    difficulty="core",
    statement=r"""
    Pass@$k$ asks for one right completion among $k$. Whoever lets a model act without a check asks for the opposite: that
    *all* of $k$ completions are right. Estimate that chance without bias from $c$ right ones among $n$ draws (the chapter's
    $K$; $k$ is its $n$): `my_all_right(right, n, k)`, with `right` of shape `[P]`, gives `[P]`. Which choices of $k$ of the $n$ do you count?
    Then put in $c = 8$ of $n = 10$ for $k = 4$, and compare with pass@4 of the same counts.
    """,
    solution=my_all_right,
    cases=(
        Case({"right": torch.tensor([1, 3]), "n": 4, "k": 2}),
        Case({"right": torch.tensor([8, 10, 0, 5]), "n": 10, "k": 4}),
        Case({"right": torch.tensor([2, 7]), "n": 7, "k": 1}),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _plug_in,
            "The share of right ones to the power k is biased upwards: that power is a convex function of the share.",
        ),
        Mistake(_one_of, "That is pass@k: one right completion is enough for it."),
        Mistake(_all_wrong, "You count the choices in which all are wrong."),
        Mistake(_not_all, "You return the chance of the opposite."),
        Mistake(_averaged, "One number for each problem; the mean comes later."),
        Mistake(
            _of_the_right,
            "The divisor is wrong: how many choices of k are there among all n?",
        ),
    ),
    where="A choice of k counts if it lies wholly among the c right ones.",
    idea=r"""
    There are $\binom nk$ ways to choose $k$ of the $n$ draws. Those without a wrong one choose all $k$ among the
    $c$ right ones. If $c < k$, there is none.
    """,
    outline="""
    ```python
    chances = [... / ... for c in right.tolist()]
    return torch.tensor(chances, dtype=torch.float64)
    ```
    """,
    right="Right. It falls with k where pass@k rises, and both are the same number at k = 1.",
)
