"""How many examples of each prompt a capped data set of right completions holds."""

import math

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake


def my_kept(p: Tensor, G: int, most: int) -> Tensor:
    """[P] pass rates -> [P]: examples that a prompt has in the data, on average."""
    c = torch.arange(G + 1, dtype=torch.float64)
    ways = torch.tensor([math.comb(G, k) for k in range(G + 1)], dtype=torch.float64)
    law = ways * p[:, None] ** c * (1 - p[:, None]) ** (G - c)  # [P, G + 1]
    return (law * c.clamp(max=most)).sum(1)


def _uncapped(p: Tensor, G: int, most: int) -> Tensor:
    return G * p


def _mean_first(p: Tensor, G: int, most: int) -> Tensor:
    return (G * p).clamp(max=most)


def _one(p: Tensor, G: int, most: int) -> Tensor:
    return 1 - (1 - p) ** G


def _all_or_nothing(p: Tensor, G: int, most: int) -> Tensor:
    return most * (1 - (1 - p) ** G)


def _fewer_samples(p: Tensor, G: int, most: int) -> Tensor:
    return most * p


def _of_the_solved(p: Tensor, G: int, most: int) -> Tensor:
    return my_kept(p, G, most) / (1 - (1 - p) ** G)


def _draw(generator: Generator) -> Case:
    G = integer(generator, 3, 12)
    most = integer(generator, 2, G)
    p = 0.05 + 0.9 * torch.rand(4, generator=generator, dtype=torch.float64)
    return Case({"p": p, "G": G, "most": most})


def _case(p: list[float], G: int, most: int) -> Case:
    return Case({"p": torch.tensor(p, dtype=torch.float64), "G": G, "most": most})


CAPPED = Exercise(
    id="play-capped",
    title="at most so many of each",
    concept="self-rewarding",
    minutes=10,
    difficulty="core",
    statement=r"""
    Recipes of rejection sampling often keep at most a few right completions of a prompt, four say, so that easy prompts do not fill the
    data. Prompt $i$ has pass rate $p_i$ and $G$ completions. Write `my_kept(p, G, most)`: how many examples it has in
    the data on average, if of its right completions at most `most` are kept.

    Predict first, for $G = 64$: what is the ratio of examples, a prompt at $p = 0.5$ to one at $p = 0.02$, with a cap of 4 and
    without?
    """,
    solution=my_kept,
    cases=(
        _case([0.5, 0.1], 4, 2),
        _case([0.02, 0.5, 0.98], 64, 4),
        _case([0.3, 0.7], 8, 3),
    ),
    draw=_draw,
    mistakes=(
        Mistake(_uncapped, "That is the mean without a cap."),
        Mistake(
            _mean_first,
            "You cap the mean. The cap holds for each draw, and a mean of capped numbers is lower.",
        ),
        Mistake(
            _one, "That is the chance of one right completion or more: a cap of 1."
        ),
        Mistake(
            _all_or_nothing,
            "A solved prompt may have fewer right completions than the cap.",
        ),
        Mistake(_fewer_samples, "All G completions are drawn; the cap comes after."),
        Mistake(
            _of_the_solved,
            "You leave out the draws in which nothing is right. They count, with no example.",
        ),
    ),
    where="The number of right completions is binomial; take the mean of the smaller of it and the cap.",
    idea=r"""
    The number of right ones is binomial. Make the numbers $0, \dots, G$ once, the chance of each for every prompt
    `[P, G + 1]`, and weigh with them the smaller of the number and the cap.
    """,
    outline="""
    ```python
    c = torch.arange(...)
    law = ...  # [P, G + 1], each row sums to 1
    return (law * ...).sum(1)
    ```
    """,
    right="Right. Where G p is far above the cap, all prompts count the same: the gradient of the mean log pass rate.",
)
