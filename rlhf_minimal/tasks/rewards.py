"""Reward functions, in the calling form that TRL made common: lists in, a list of numbers out.

    reward(prompts=[...], completions=[...], **columns) -> list[float]

One entry a completion. The columns carry whatever else the problem knows: here `problem` (the `Problem` itself),
`answer` (its text) and `step` (the number of the training step). A function written for TRL with `**kwargs` at the end
works here unchanged, and the other way round.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from rlhf_minimal.tasks.base import Problem, Task

RewardFunction = Callable[..., Sequence[float]]

LARGEST = 3.4e38  # a reward becomes a float32


def verifier_reward(task: Task) -> RewardFunction:
    """The task's own verifier as a reward function.

    Example:
        >>> from rlhf_minimal.tasks import get_task
        >>> reward = verifier_reward(get_task("addition2"))
        >>> reward(prompts=["75+50="] * 2, completions=["521", "520"], problem=[Problem("75+50=", "521")] * 2)
        [1.0, 0.0]
    """

    def reward(
        prompts: Sequence[str], completions: Sequence[str], problem: Sequence[Problem], **columns: Any
    ) -> list[float]:
        return [float(task.verify(c, p)) for c, p in zip(completions, problem, strict=True)]

    return reward


@runtime_checkable  # or the shape hook of the tests could not check it
class Scorer(Protocol):
    """Whatever can score answers: a `models.RewardModel`, or anything else with this method."""

    def score(self, prompts: list[str], completions: list[str]) -> Tensor:
        """[B] scores of B answers."""
        ...


def model_reward(reward_model: Scorer) -> RewardFunction:
    """A reward model as a reward function: what is optimised is then a model of the truth, a proxy.

    Args:
        reward_model: `models.load_reward_model(folder)`, or anything with its `score`.

    Example:
        >>> import torch
        >>> class Longer:
        ...     def score(self, prompts, completions):
        ...         return torch.tensor([float(len(text)) for text in completions])
        >>> model_reward(Longer())(prompts=["a:", "a:"], completions=["b", "bb"])
        [1.0, 2.0]
    """

    def reward(prompts: Sequence[str], completions: Sequence[str], **columns: Any) -> list[float]:
        return [float(score) for score in reward_model.score(list(prompts), list(completions)).tolist()]

    return reward


def random_reward(seed: int = 0) -> RewardFunction:
    """A coin flip for every completion: the control arm. Whatever still "improves" under it is not learning.

    The coins of a step depend on (seed, step) alone, so that an interrupted run resumes with the same ones.
    """

    def reward(prompts: Sequence[str], completions: Sequence[str], step: Sequence[int], **columns: Any) -> list[float]:
        rng = random.Random(f"coin/{seed}/{step[0]}")
        return [float(rng.random() < 0.5) for _ in completions]

    return reward


def call_reward(
    reward: RewardFunction, problems: Sequence[Problem], completions: Sequence[str], step: int
) -> list[float]:
    """Calls a reward function and checks what comes back: the strict form, for trying one out.

    A run calls `score_all`, which forgives a function that raises or hangs: that costs the completion and not the run.

    Raises:
        ValueError: If it is not one finite number per completion; the message names the first row at fault, from 1.
    """
    return check_scores(ask(reward, problems, completions, step), problems, completions)


class WrongCount(ValueError):
    """A reward function has not returned one entry for each completion."""


def ask(reward: RewardFunction, problems: Sequence[Problem], completions: Sequence[str], step: int) -> Sequence[Any]:
    """Calls a reward function; only the number of its entries is checked.

    Raises:
        WrongCount: If it is not that of the completions.
    """
    scores = reward(
        prompts=[p.prompt for p in problems],
        completions=list(completions),
        problem=list(problems),
        answer=[p.answer for p in problems],
        step=[step] * len(problems),
    )
    if scores is None or len(scores) != len(completions):
        got = "None" if scores is None else f"{len(scores)} numbers"
        raise WrongCount(f"a reward function must return one number per completion ({len(completions)}); got {got}")
    return scores


def check_scores(scores: Sequence[Any], problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
    """The scores as numbers.

    Raises:
        ValueError: If one is no finite number; the message names its row, from 1.
    """
    found = []
    for row, (score, problem, completion) in enumerate(zip(scores, problems, completions, strict=True), start=1):
        try:
            found.append(finite(score))
        except (ValueError, TypeError, OverflowError, RuntimeError) as error:
            raise ValueError(
                f"a reward must be a finite number; got {score} in row {row}, for the prompt {problem.prompt!r} and "
                f"the completion {completion!r}"
            ) from error
    return found


def finite(score: Any) -> float:
    """A score as a number that a float32 can hold.

    Raises:
        ValueError, TypeError, OverflowError, RuntimeError: If it is none.
    """
    value = float(score)
    if not abs(value) <= LARGEST:  # NaN, too
        raise ValueError(f"a reward must be a finite number; got {value}")
    return value
