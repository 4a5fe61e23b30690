"""What the best arm of a grid is worth, if nobody may choose with the seeds that he reports."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake


def my_honest(scores: Tensor) -> float:
    """[arms, seeds] -> mean score of arms chosen on the other seeds."""
    seeds = scores.shape[1]
    left = (scores.sum(1, keepdim=True) - scores) / (seeds - 1)  # [arms, seeds]
    return scores.gather(0, left.argmax(0, keepdim=True)).mean().item()


def _best(scores: Tensor) -> float:
    return scores.mean(1).max().item()


def _all(scores: Tensor) -> float:
    return scores.mean().item()


def _oracle(scores: Tensor) -> float:
    return scores.max(0).values.mean().item()


def _chosen_on_one(scores: Tensor) -> float:
    best = scores.argmax(0)
    return (
        torch.stack([scores[best[s]].mean() for s in range(scores.shape[1])])
        .mean()
        .item()
    )


def _of_the_others(scores: Tensor) -> float:
    left = (scores.sum(1, keepdim=True) - scores) / (scores.shape[1] - 1)
    return left.max(0).values.mean().item()


def _median(scores: Tensor) -> float:
    return scores[scores.median(1).values.argmax()].mean().item()


def _draw(generator: Generator) -> Case:
    shape = (integer(generator, 3, 6), integer(generator, 3, 7))
    return Case({"scores": torch.rand(shape, generator=generator, dtype=torch.float64)})


def _case(scores: list[list[float]]) -> Case:
    return Case({"scores": torch.tensor(scores, dtype=torch.float64)})


HONEST = Exercise(
    id="choose-honest",
    title="the best of a grid",
    concept="future-hybrids",
    minutes=10,
    difficulty="core",
    statement=r"""
    A grid of settings has been run with the same seeds: `scores` [arms, seeds]. Reporting the arm with the best mean is too
    hopeful, since the same seeds chose it. Write `my_honest(scores)`: for each seed take the arm with the best mean over all *other*
    seeds, and its score on this seed; return the mean over seeds. No two means are equal.

    Predict first: may this be below the mean of all scores?
    """,
    solution=my_honest,
    cases=(
        _case([[0.9, 0.2, 0.3], [0.5, 0.55, 0.6], [0.1, 0.8, 0.4]]),
        _case([[0.62, 0.58, 0.66, 0.5], [0.6, 0.61, 0.59, 0.63]]),
        _case([[0.4, 0.7, 0.1], [0.3, 0.2, 0.9], [0.8, 0.45, 0.05]]),
    ),
    draw=_draw,
    mistakes=(
        Mistake(_best, "The same seeds choose and report here."),
        Mistake(_all, "That is the worth of an arm chosen blindly."),
        Mistake(_oracle, "You choose with the very seed that you report."),
        Mistake(
            _chosen_on_one,
            "You choose on one seed and report all; it is the other way round.",
        ),
        Mistake(
            _of_the_others,
            "You report the seeds that have chosen; report the one left out.",
        ),
        Mistake(
            _median, "The choice is by the mean, without the seed that is reported."
        ),
    ),
    where="Leave one seed out: means over the others, the best arm, its score on the seed left out.",
    idea="""
    The mean over all seeds but one is (sum minus that score) / (seeds − 1): a table `[arms, seeds]`. In each column
    find the arm with the best entry, and read *its score on that seed* from the other table.
    """,
    outline="""
    ```python
    left = ...  # [arms, seeds], means without the seed
    chosen = ...  # one arm for each seed
    return scores.gather(0, chosen).mean().item()
    ```
    """,
    right="Right. On average over tables of equal arms it is their mean, no more: the score left out did not choose. In one table it may fall below, most surely if all arms have the same total.",
)
