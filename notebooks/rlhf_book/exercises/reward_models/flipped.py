"""The best accuracy on labels that are noisy twice: people who are unsure, and mistakes in writing the label down."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake


def my_best_accuracy(gaps: Tensor, flip: float) -> Tensor:
    """[N] true reward gaps, a share of flipped labels -> the Bayes limit."""
    sure = gaps.abs().sigmoid()
    return (sure * (1 - flip) + (1 - sure) * flip).mean()


def _no_absolute_value(gaps: Tensor, flip: float) -> Tensor:
    sure = gaps.sigmoid()
    return (sure * (1 - flip) + (1 - sure) * flip).mean()


def _flip_forgotten(gaps: Tensor, flip: float) -> Tensor:
    return gaps.abs().sigmoid().mean()


def _flipped_are_lost(gaps: Tensor, flip: float) -> Tensor:
    return (gaps.abs().sigmoid() * (1 - flip)).mean()


def _sure_people(gaps: Tensor, flip: float) -> Tensor:
    return torch.full((), 1 - flip, dtype=gaps.dtype)


def _of_the_mean_gap(gaps: Tensor, flip: float) -> Tensor:
    sure = gaps.abs().mean().sigmoid()
    return sure * (1 - flip) + (1 - sure) * flip


def _half_the_damage(gaps: Tensor, flip: float) -> Tensor:
    sure = gaps.abs().sigmoid().mean()
    return sure * (1 - flip) + 0.5 * flip


def _draw(generator: Generator) -> Case:
    n = integer(generator, 1, 8)
    gaps = 2 * torch.randn(n, generator=generator, dtype=torch.float64)
    return Case({"gaps": gaps, "flip": integer(generator, 0, 8) / 20})


def _case(gaps: list[float], flip: float) -> Case:
    return Case({"gaps": torch.tensor(gaps, dtype=torch.float64), "flip": flip})


FLIPPED = Exercise(
    id="rm-flipped",
    title="the limit of labels that are noisy twice",
    concept="bradley-terry",
    minutes=8,
    difficulty="core",
    statement=r"""
    People prefer by Bradley-Terry; the true reward gaps of $N$ pairs (first minus second completion) are `gaps` `[N]`. Then a share `flip` of
    the labels, at most 0.5 and drawn at random, is written down the wrong way round. Which accuracy can the best possible reward model
    reach on these labels, on average? Write `my_best_accuracy(gaps, flip)`; the result is one number. Then predict: which is worse for a
    pair with a gap of 1, people who are half as sure (a gap of 0.5), or 10 % flipped labels?
    """,
    solution=my_best_accuracy,
    cases=(
        _case([1.0, -2.0, 0.5, 3.0], 0.1),
        _case([0.0, 4.0], 0.0),
        _case([2.0], 0.5),
        _case([-1.0, -3.0], 0.25),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _no_absolute_value,
            "Pairs whose first completion is the worse one count against you. The best model ranks these, too, in the true order.",
        ),
        Mistake(_flip_forgotten, "This is the limit without the flipped labels."),
        Mistake(
            _flipped_are_lost,
            "A flipped label is not always one that you miss: what if the person had been wrong before?",
        ),
        Mistake(_sure_people, "As if people always preferred the better one."),
        Mistake(
            _of_the_mean_gap,
            "You take the sigmoid of the mean gap. It is a mean of sigmoids.",
        ),
        Mistake(
            _half_the_damage,
            "A flipped label is no coin: it is the opposite of what the person said.",
        ),
    ),
    where="For one pair: with which probability is the label that was written down the true order? Two ways lead there.",
    idea=r"""
    For one pair let $s = \sigma(|\text{gap}|)$ be the chance that people prefer the truly better one. The label
    that is written down agrees with the true order in two ways: they were right and nothing was flipped, or they
    were wrong and it was. The best model always says the true order.
    """,
    outline="""
    ```python
    sure = ...  # [N], between a half and 1
    return (sure * ... + (1 - sure) * ...).mean()
    ```
    """,
    right=(
        "Right. Flips shrink the distance from one half by the factor 1 - 2 flip, for every pair alike, so no gap is ever certain. "
        "Smoothing of the logistic loss is made for this noise."
    ),
)
