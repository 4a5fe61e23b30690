"""The law of the best of n samples where scores may be equal."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given


def my_best_of_n(p: Tensor, scores: Tensor, n: int) -> Tensor:
    """[N] probabilities, [N] scores, n -> [N] probabilities of the best of n."""
    at_most = (p * (scores[None] <= scores[:, None])).sum(1)
    below = (p * (scores[None] < scores[:, None])).sum(1)
    return (at_most**n - below**n) * p / (at_most - below)


def _no_ties(p: Tensor, scores: Tensor, n: int) -> Tensor:
    order = scores.argsort(stable=True)
    sums = p[order].cumsum(0)
    law = torch.empty_like(p)
    law[order] = sums**n - (sums - p[order]) ** n
    return law


def _class_not_divided(p: Tensor, scores: Tensor, n: int) -> Tensor:
    at_most = (p * (scores[None] <= scores[:, None])).sum(1)
    below = (p * (scores[None] < scores[:, None])).sum(1)
    return at_most**n - below**n


def _evenly(p: Tensor, scores: Tensor, n: int) -> Tensor:
    equal = (scores[None] == scores[:, None]).sum(1)
    return _class_not_divided(p, scores, n) / equal


def _below_only(p: Tensor, scores: Tensor, n: int) -> Tensor:
    at_most = (p * (scores[None] <= scores[:, None])).sum(1)
    law = n * at_most ** (n - 1) * p
    return law / law.sum()


def _one_draw_too_few(p: Tensor, scores: Tensor, n: int) -> Tensor:
    return p if n == 1 else my_best_of_n(p, scores, n - 1)


def _case(generator: Generator, size: int, levels: int, n: int) -> Case:
    p = torch.randn(size, generator=generator, dtype=torch.float64).softmax(0)
    scores = torch.randint(levels, (size,), generator=generator).double()
    return Case({"p": p, "scores": scores, "n": n})


def _draw(generator: Generator) -> Case:
    return _case(generator, integer(generator, 5, 9), 3, integer(generator, 2, 9))


_FIXED = Generator().manual_seed(1)

BEST_OF_N = Exercise(
    id="rlhf-best-of-n",
    title="the best of n, with ties",
    concept="reward-hacking",
    minutes=12,
    difficulty="stretch",
    statement=r"""
    A prompt has `[N]` completions with probabilities `p` and proxy `scores`, some of them equal. Draw n of them and keep the one with
    the highest score; among equals keep one of the drawn at random. Write `my_best_of_n(p, scores, n)`: the `[N]` probabilities of what is kept.
    """,
    solution=my_best_of_n,
    cases=(
        Case(
            {
                "p": torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64),
                "scores": torch.tensor([1.0, 2.0, 2.0], dtype=torch.float64),
                "n": 2,
            }
        ),
        _case(_FIXED, 6, 3, 4),
        _case(_FIXED, 6, 2, 1),
        _case(_FIXED, 8, 4, 16),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _no_ties,
            "You break ties by the order of the list. Then the same two completions get other chances if they swap places.",
        ),
        Mistake(
            _class_not_divided,
            "These do not add up to 1: every completion got the chance of its whole class of equal scores.",
        ),
        Mistake(
            _evenly,
            "Within a class of equal scores the kept one is as likely as it was drawn, not every one alike.",
        ),
        Mistake(
            _below_only,
            "You have the density for scores that are all different and infinitely close. Here a score has a chance of its own.",
        ),
        Mistake(
            _one_draw_too_few,
            "This is the best of n - 1 draws.",
        ),
        Mistake(
            given(my_best_of_n, scores=lambda scores: -scores),
            "This keeps the lowest score.",
        ),
    ),
    where="The best score is at most s if all n are. That gives the chance of each level; divide it within the level.",
    idea="""
    Let $F(s)$ be the chance that one draw scores at most $s$, and $F^-(s)$ that it scores less. The best of n is at
    level $s$ with the chance $F(s)^n - F^-(s)^n$. Within a level the kept one is spread in proportion to `p`.
    """,
    outline="""
    ```python
    at_most = ...  # [N], for each completion: the mass of those no better
    below = ...  # [N], strictly worse
    level = ...  # [N], the best of n is at this score
    return level * ...  # the completion's part of its level
    ```
    """,
    right="Right. With all scores equal the result is p itself, for every n, and the KL is 0, not log n - (n - 1) / n.",
)
