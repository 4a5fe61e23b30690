"""Find the bug: choosing among completions, as it was once written."""

from collections.abc import Callable

import torch

from ..bug import Bug


def suspect_election(answers: list[str], log_scores: list[float]) -> str:
    """The answer with the largest total of log-probabilities to be right."""
    totals: dict[str, float] = {}
    for answer, score in zip(answers, log_scores, strict=True):
        totals[answer] = totals.get(answer, 0.0) + score
    return max(totals, key=lambda answer: totals[answer])


def more_and_more_votes(election: Callable[..., str]) -> None:
    """One vote for b, and more and more for f; all are scored alike."""
    for votes in (1, 2, 4, 8):
        answers = ["b"] + ["f"] * votes
        print(f"b 1, f {votes}: elected {election(answers, [-0.7] * len(answers))}")


def votes_never_hurt(election: Callable[..., str]) -> None:
    """Among completions with equal scores the frequent answer wins, and a better score wins among equals."""
    for log_score in (-0.1, -0.7, -3.0):
        answers = ["b", "f", "f", "f", "c", "c"]
        elected = election(answers, [log_score] * 6)
        assert elected == "f", f"f has three of six equal votes, elected is {elected}"
    elected = election(["b", "f"], [-0.2, -2.0])
    assert elected == "b", f"b has the better score, elected is {elected}"
    both = torch.tensor([0.9, 0.2, 0.2, 0.2]).log().tolist()
    assert election(["b", "f", "f", "f"], both) == "b", (
        "0.9 is more than three times 0.2"
    )


def mended_election(answers: list[str], log_scores: list[float]) -> str:
    """The answer with the largest total of log-probabilities to be right."""
    totals: dict[str, float] = {}
    for answer, score in zip(answers, torch.tensor(log_scores).exp(), strict=True):
        totals[answer] = totals.get(answer, 0.0) + score.item()
    return max(totals, key=lambda answer: totals[answer])


MINORITY = Bug(
    id="votes-that-hurt",
    title="a vote that elects the minority",
    concept="test-time-scaling",
    minutes=5,
    statement="""
    A scorer gives each completion the log-probability that it is right, and the votes are weighed with it. With more
    completions the accuracy falls below that of a single one. The cell lets eight voters of equal weight join one side.
    What should the last line say?
    """,
    wrong=suspect_election,
    symptom=more_and_more_votes,
    reveals=votes_never_hurt,
    mended=mended_election,
    idea="""
    Give three completions equal scores, two of which agree. What are the totals of the two answers, and which one
    is larger?
    """,
    outline="""
    A further vote must never lower a total:

    ```python
    for answer, score in zip(answers, ..., strict=True):  # a weight of at least 0
        ...  # added to the total of its answer
    ```
    """,
    moral="""
    Logarithms of probabilities are negative, so every further vote lowers its answer's total, and the answer with the
    fewest votes wins. A weight has to be at least 0: take the probability itself. (`evaluate_votes` refuses a negative
    weight for that reason.) The habit: give all completions the same score, and see that the plain majority comes out.
    """,
)

BUGS = (MINORITY,)
