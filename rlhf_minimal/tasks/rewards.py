"""Reward functions, in the calling form that TRL made common: lists in, a list of numbers out.

    reward(prompts=[...], completions=[...], **columns) -> list[float]

Each list has one entry per completion. The columns carry more about the problem: here `problem` (the `Problem` itself),
`answer` (its text) and `step` (the number of the training step).

A function that was written for TRL works here if it reads these columns alone, takes texts and not lists of messages,
has `**kwargs` at the end, is no coroutine, and returns a number for every completion (None, TRL's "not applicable", is
refused). A function of this form works in TRL if its data has the columns.

A step reward is called in the same way and returns a list of steps for each completion, `(end, mark)` each: it says
how good the single steps of a completion are, where a reward says how good its outcome is.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any

from rlhf_minimal.tasks.base import Problem, Step, Task

RewardFunction = Callable[..., Sequence[float]]
StepReward = Callable[..., Sequence[Sequence[Step]]]  # called like a reward function; a list of steps per completion


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


def model_reward(reward_model: Any, write: Callable[[str], str] | None = None) -> RewardFunction:
    """A reward model as a reward function: the policy is then trained on a proxy, not on the true score.

    Args:
        reward_model: `models.load_reward_model(folder)`, or anything else with a method `score(prompts, completions)`
            that returns [B] scores of B answers.
        write: A prompt as the model reads it. By default what its vocabulary makes of it, or the prompt itself where
            there is none. A task's instruction has to be given: `partial(reward_model.vocabulary.prompt_text,
            system=task.instruction)`.

    Example:
        >>> import torch
        >>> class Longer:
        ...     def score(self, prompts, completions):
        ...         return torch.tensor([float(len(text)) for text in completions])
        >>> model_reward(Longer())(prompts=["a:", "a:"], completions=["b", "bb"])
        [1.0, 2.0]
    """
    own: Callable[[str], str] = getattr(getattr(reward_model, "vocabulary", None), "prompt_text", str)
    written = write or own

    def reward(prompts: Sequence[str], completions: Sequence[str], **columns: Any) -> list[float]:
        return [float(score) for score in reward_model.score(list(map(written, prompts)), list(completions)).tolist()]

    return reward


def checked_steps(task: Task) -> StepReward:
    """The task's own checker of steps as a step reward.

    Raises:
        ValueError: If the task has none.

    Example:
        >>> from rlhf_minimal.tasks import get_task
        >>> marks = checked_steps(get_task("clock10"))
        >>> marks(prompts=["3+8:"], completions=["3d8c=c"], problem=[Problem("3+8:", "b")])
        [[Step(end=2, mark=1.0), Step(end=4, mark=0.0)]]
    """
    check = task.steps
    if check is None:
        raise ValueError(f"the task {task.name!r} cannot check steps: give a step reward of your own")

    def step_reward(
        prompts: Sequence[str], completions: Sequence[str], problem: Sequence[Problem], **columns: Any
    ) -> list[Sequence[Step]]:
        return [check(c, p) for c, p in zip(completions, problem, strict=True)]

    return step_reward


def random_reward(seed: int = 0) -> RewardFunction:
    """A coin flip for every completion, as a control: an improvement under this reward is not caused by the reward.

    The coin flips of a step depend on (seed, step) alone, so that an interrupted run resumes with the same ones.
    """

    def reward(prompts: Sequence[str], completions: Sequence[str], step: Sequence[int], **columns: Any) -> list[float]:
        rng = random.Random(f"coin/{seed}/{step[0]}")
        return [float(rng.random() < 0.5) for _ in completions]

    return reward
