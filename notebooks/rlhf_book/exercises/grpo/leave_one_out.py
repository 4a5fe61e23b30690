"""The baseline that leaves oneself out."""

import torch
from torch import Generator, Tensor

from ..draws import books_batch, integer, uniform
from ..exercise import Case, Exercise, Mistake
from ..mistakes import negated


def my_leave_one_out(rewards: Tensor, group_size: int) -> Tensor:
    """[B] rewards, groups together -> [B]: each minus the mean of the *others*."""
    groups = rewards.view(-1, group_size)  # [P, G]
    others = (groups.sum(-1, keepdim=True) - groups) / (group_size - 1)
    return (groups - others).flatten()


def _centred(rewards: Tensor, group_size: int) -> Tensor:
    groups = rewards.view(-1, group_size)
    return (groups - groups.mean(-1, keepdim=True)).flatten()


def _inverse_factor(rewards: Tensor, group_size: int) -> Tensor:
    return _centred(rewards, group_size) * (group_size - 1) / group_size


def _others_over_all(rewards: Tensor, group_size: int) -> Tensor:
    groups = rewards.view(-1, group_size)
    return (groups - (groups.sum(-1, keepdim=True) - groups) / group_size).flatten()


def _all_over_others(rewards: Tensor, group_size: int) -> Tensor:
    groups = rewards.view(-1, group_size)
    return (groups - groups.sum(-1, keepdim=True) / (group_size - 1)).flatten()


def _out_of_the_batch(rewards: Tensor, group_size: int) -> Tensor:
    return rewards - (rewards.sum() - rewards) / max(len(rewards) - 1, 1)


def _draw_plain_rewards(generator: Generator) -> Case:
    prompts, group_size = integer(generator, 1, 5), integer(generator, 2, 17)
    rewards = 4 * uniform(generator, prompts * group_size) - 1
    return Case({"rewards": rewards.float(), "group_size": group_size})


LEAVE_ONE_OUT = Exercise(
    id="grpo-leave-one-out",
    title="leaving yourself out",
    concept="baseline-local-vs-global",
    minutes=5,
    difficulty="warm-up",
    statement=r"""
    The group's mean contains the completion's own reward. Write `my_leave_one_out(rewards, group_size)`: each reward
    minus the mean of the *other* $G-1$ rewards of its group. Then divide it by the reward minus the plain mean, on a
    group of your choice: which factor do you find, and does it depend on the rewards?
    """,
    solution=my_leave_one_out,
    cases=(
        Case({"rewards": books_batch()["rewards"], "group_size": 4}),
        Case({"rewards": torch.tensor([1.0, 3.0]), "group_size": 2}),
        Case(
            {"rewards": torch.tensor([0.0, 2.0, 7.0, 1.0, 1.0, 4.0]), "group_size": 3}
        ),
    ),
    draw=_draw_plain_rewards,
    mistakes=(
        Mistake(
            _centred,
            "This is the reward minus the mean of all, itself included. Leave one out: how many are left?",
        ),
        Mistake(
            _inverse_factor,
            "The factor between the two baselines is upside down: leaving oneself out widens the distance.",
        ),
        Mistake(
            _others_over_all,
            "You sum the others and divide by how many there are in all: count those you summed.",
        ),
        Mistake(_all_over_others, "Your sum still holds the completion's own reward."),
        Mistake(
            _out_of_the_batch,
            "You leave one out of the whole batch: the others are those of the same prompt.",
        ),
        Mistake(
            negated(my_leave_one_out),
            "The sign is the other way round: a reward above the others is an advantage above 0.",
        ),
    ),
    where="Do it by hand for a group of two: there is exactly one other reward.",
    idea="""
    The sum of the others is the sum of the group minus the own reward. It is done for all rewards at once on `[P,
    G]`, if the sum keeps its axis.
    """,
    outline="""
    ```python
    groups = rewards.view(..., ...)  # [P, G]
    others = (... - groups) / ...  # [P, G], how many others are there?
    return ...  # each minus its others, [B] again
    ```
    """,
    right="Right. Compare it with the centred rewards: a scale, the same for everybody, and no change of direction.",
)
