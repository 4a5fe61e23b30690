"""The exact chance that a vote elects the right answer."""

from itertools import product

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake


def my_vote_chance(q: Tensor, n: int) -> float:
    """[A] chances of the answers -> the chance that n votes elect answer 0."""
    draws = torch.cartesian_prod(*[torch.arange(len(q))] * n).view(-1, n)  # [A^n, n]
    counts = torch.stack([(draws == a).sum(1) for a in range(len(q))], dim=1)
    first = (counts == counts.amax(1, keepdim=True)).double()  # [A^n, A]
    return (q[draws].prod(1) * first[:, 0] / first.sum(1)).sum().item()


def _elected(q: Tensor, n: int, *, tie: float, least: float = 0.0) -> float:
    chance = 0.0
    for draws in product(range(len(q)), repeat=n):
        counts = [draws.count(a) for a in range(len(q))]
        tied = counts.count(max(counts)) > 1
        if counts[0] == max(counts) and counts[0] > least:
            chance += q[list(draws)].prod().item() * (tie if tied else 1.0)
    return chance


def _ties_won(q: Tensor, n: int) -> float:
    return _elected(q, n, tie=1.0)


def _ties_lost(q: Tensor, n: int) -> float:
    return _elected(q, n, tie=0.0)


def _ties_by_coin(q: Tensor, n: int) -> float:
    return _elected(q, n, tie=0.5)


def _more_than_half(q: Tensor, n: int) -> float:
    return _elected(q, n, tie=1.0, least=n / 2)


def _one_of(q: Tensor, n: int) -> float:
    return 1 - (1 - q[0].item()) ** n


def _one_vote(q: Tensor, n: int) -> float:
    return q[0].item()


def _limit(q: Tensor, n: int) -> float:
    return float(q[0] == q.max())


def _draw(generator: Generator) -> Case:
    size, n = integer(generator, 3, 5), integer(generator, 2, 5)
    logits = torch.randn(size, generator=generator, dtype=torch.float64)
    return Case({"q": logits.softmax(-1), "n": n})


def _case(q: list[float], n: int) -> Case:
    return Case({"q": torch.tensor(q, dtype=torch.float64), "n": n})


VOTE = Exercise(
    id="tts-vote-chance",
    title="an election, exactly",
    concept="test-time-scaling",
    minutes=15,
    difficulty="core",
    statement=r"""
    A completion's final answer is $a$ with probability `q[a]`, and answer 0 is right. Write `my_vote_chance(q, n)`: the
    exact probability that the most frequent answer of $n$ completions is answer 0, where a tie is decided by lot among
    its answers. There are few answers and votes, so you may list every sequence of $n$ of them.

    Predict first: for `q = [0.4, 0.35, 0.25]`, are two votes better than one? And where does it end as $n$ grows for `[0.3, 0.5,
    0.2]`?
    """,
    solution=my_vote_chance,
    cases=(
        _case([0.5, 0.3, 0.2], 3),
        _case([0.4, 0.35, 0.25], 2),
        _case([0.3, 0.5, 0.2], 5),
    ),
    draw=_draw,
    mistakes=(
        Mistake(_ties_won, "You give every tie to the right answer."),
        Mistake(_ties_lost, "You count a tie as lost. The lot may fall on answer 0."),
        Mistake(
            _ties_by_coin,
            "With three answers in a tie, the lot falls on each with a third.",
        ),
        Mistake(
            _more_than_half,
            "You ask for more than half of the votes. The most frequent answer may have fewer.",
        ),
        Mistake(_one_of, "That is pass@n: one vote does not win an election."),
        Mistake(_one_vote, "That is the accuracy of a single completion."),
        Mistake(_limit, "That is the limit for many votes."),
    ),
    where="List the sequences (torch.cartesian_prod), count, and weigh each by its probability.",
    idea="""
    Each of the $A^n$ sequences has a probability (a product) and counts of its answers. Answer 0 wins for certain
    if it alone has the most votes, with a half if two share the first place, and so on.
    """,
    outline="""
    ```python
    draws = ...  # [A^n, n], all sequences
    counts = ...  # [A^n, A]
    first = ...  # [A^n, A], 1 where an answer has the most votes
    return (q[draws].prod(1) * ...).sum().item()  # its part of the first place
    ```
    """,
    right="Right. With two votes nothing is gained at all: two that agree are no news, and two that differ are decided by lot.",
)
