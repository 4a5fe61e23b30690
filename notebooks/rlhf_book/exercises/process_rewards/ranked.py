"""A score that ranks, and a verifier that decides."""

import torch
from torch import Generator, Tensor

from ..draws import integer, uniform
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given


def my_ranked_advantage(
    outcomes: Tensor, scores: Tensor, group_size: int, weight: float
) -> Tensor:
    """[B] outcomes and scores -> [B] advantages."""
    R = outcomes.view(-1, group_size)  # [P, G]
    total = R + weight * scores.view(-1, group_size)
    mixed = R.amax(1, keepdim=True) > R.amin(1, keepdim=True)  # [P, 1]
    return ((total - total.mean(1, keepdim=True)) * mixed).flatten()


def _kept(outcomes: Tensor, scores: Tensor, group_size: int, weight: float) -> Tensor:
    total = (outcomes + weight * scores).view(-1, group_size)
    return (total - total.mean(1, keepdim=True)).flatten()


def _all_wrong(
    outcomes: Tensor, scores: Tensor, group_size: int, weight: float
) -> Tensor:
    some = outcomes.view(-1, group_size).amax(1, keepdim=True) > 0
    centred = _kept(outcomes, scores, group_size, weight).view(-1, group_size)
    return (centred * some).flatten()


def _whole_batch(
    outcomes: Tensor, scores: Tensor, group_size: int, weight: float
) -> Tensor:
    R = outcomes.view(-1, group_size)
    mixed = (R.amax(1, keepdim=True) > R.amin(1, keepdim=True)).expand_as(R).flatten()
    total = outcomes + weight * scores
    return (total - total.mean()) * mixed


def _divided(
    outcomes: Tensor, scores: Tensor, group_size: int, weight: float
) -> Tensor:
    total = (outcomes + weight * scores).view(-1, group_size)
    A = my_ranked_advantage(outcomes, scores, group_size, weight).view(-1, group_size)
    return (A / (total.std(1, keepdim=True) + 1e-4)).flatten()


def _right_alone(
    outcomes: Tensor, scores: Tensor, group_size: int, weight: float
) -> Tensor:
    return my_ranked_advantage(outcomes, outcomes * scores, group_size, weight)


def _others(outcomes: Tensor, scores: Tensor, group_size: int, weight: float) -> Tensor:
    A = my_ranked_advantage(outcomes, scores, group_size, weight)
    return A * group_size / (group_size - 1)


def _draw(generator: Generator) -> Case:
    G = integer(generator, 2, 5)
    outcomes = (uniform(generator, 3 * G) > 0.5).double()
    outcomes[:G] = float(integer(generator, 0, 2))
    return Case(
        {
            "outcomes": outcomes,
            "scores": uniform(generator, 3 * G),
            "group_size": G,
            "weight": 0.05 + 0.4 * float(uniform(generator, 1)),
        }
    )


RANKED = Exercise(
    id="prm-ranked",
    title="the verifier decides, the score ranks",
    concept="q-x-prm-soft-verifier",
    minutes=10,
    difficulty="core",
    statement=r"""
    A PRM beside a verifier, so that it can do little harm. `outcomes` and `scores` are `[B]`, groups lie next to each other.
    The reward is the outcome plus `weight` times the score; the advantage is the reward minus the group's mean, not
    divided; a group whose *outcomes* are all equal teaches nothing. Write `my_ranked_advantage(outcomes, scores,
    group_size, weight)`. For which weights does every right completion of a group keep a higher advantage than every wrong one, if scores
    lie between 0 and 1?
    """,
    solution=my_ranked_advantage,
    cases=(
        Case(
            {
                "outcomes": torch.tensor([1.0, 0, 0, 0, 1, 1, 0, 1]).double(),
                "scores": torch.tensor(
                    [0.9, 0.2, 0.4, 0.1, 0.8, 0.3, 0.6, 0.7]
                ).double(),
                "group_size": 4,
                "weight": 0.1,
            }
        ),
        Case(
            {
                "outcomes": torch.tensor([0.0, 0, 1, 1, 1, 0]).double(),
                "scores": torch.tensor([0.1, 0.9, 0.2, 0.8, 0.5, 0.5]).double(),
                "group_size": 2,
                "weight": 0.3,
            }
        ),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _kept,
            "Groups whose outcomes are all equal still get advantages, from their scores alone.",
        ),
        Mistake(
            _all_wrong,
            "You leave out groups that are all wrong. What about those that are all right?",
        ),
        Mistake(
            _whole_batch,
            "The mean is that of the batch. Completions are compared with those of the same prompt.",
        ),
        Mistake(_divided, "The mean is subtracted, and nothing is divided here."),
        Mistake(
            given(my_ranked_advantage, weight=1.0),
            "The score counts in full: its weight is missing.",
        ),
        Mistake(
            _right_alone,
            "Only right completions are ranked by their scores. Wrong ones have scores, too.",
        ),
        Mistake(
            _others,
            "You subtract the mean of the others. Here it is the mean of the whole group.",
        ),
        Mistake(
            given(my_ranked_advantage, weight=0.0),
            "The score does not count at all in your answer.",
        ),
    ),
    where="Which of the two numbers may say that a group is worth learning from?",
    idea="""
    The total (outcome plus weighted score) says how good a completion is within its group. Whether the group
    teaches anything is asked of the *outcomes* alone: do two of them differ?
    """,
    outline="""
    ```python
    R = ...  # [P, G]
    total = ...
    mixed = ...  # [P, 1], from R
    return ((...) * mixed).flatten()
    ```
    """,
    right="Right. With weights below 1 no score can lift a wrong completion above a right one of its group.",
)
