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

import math
import operator
import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from torch import Tensor

from rlhf_minimal.tasks.base import Problem, Step, Task

RewardFunction = Callable[..., Sequence[float]]
StepReward = Callable[..., Sequence[Sequence[Step]]]  # called like a reward function; a list of steps per completion
Result = TypeVar("Result")

LARGEST = 1e15  # size of a reward: sums of squares of many rewards must fit into float32, whose largest is 3.4e38


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


class WrongCount(ValueError):
    """A reward function has not returned a sequence with one entry for each completion."""


def ask(
    reward: RewardFunction | StepReward,
    problems: Sequence[Problem],
    completions: Sequence[str],
    step: int,
    *,
    entry: str = "number",
) -> Any:
    """Calls a reward function and checks how many entries it returns, but not their values; `entry` names one.

    Raises:
        WrongCount: If it returns no sequence (a list, a tuple, an array, a tensor), or one of another length.
    """
    scores: Any = reward(
        prompts=[p.prompt for p in problems],
        completions=list(completions),
        problem=list(problems),
        answer=[p.answer for p in problems],
        step=[step] * len(problems),
    )
    try:
        # a dict has keys and a set has no order: neither says which number belongs to which completion
        listed = isinstance(scores, Sequence | Tensor) or hasattr(scores, "__array__")
        count = len(scores) if listed and not isinstance(scores, str | bytes | bytearray) else None
    except TypeError:  # an array or a tensor of a single number
        count = None
    if count != len(completions):
        got = "None" if scores is None else f"{count} numbers" if count is not None else f"a {type(scores).__name__}"
        raise WrongCount(
            f"a reward function must return one {entry} per completion, {len(completions)} in a list; got {got}"
        )
    return scores


def read_each(
    read: Callable[[Any, str], Result], entries: Sequence[Any], problems: Sequence[Problem], completions: Sequence[str]
) -> list[Result]:
    """What a reward function has returned, read entry by entry: `read(entry, completion)` says what an entry means.

    Raises:
        ValueError: If `read` raises one; the message then names the row, counted from 1.

    Example:
        >>> read_each(read_steps, [[(2, 1)]], [Problem("3+8:", "b")], ["3d=b"])
        [[Step(end=2, mark=1.0)]]
    """
    found = []
    for row, (entry, problem, completion) in enumerate(zip(entries, problems, completions, strict=True), start=1):
        try:
            found.append(read(entry, completion))
        except ValueError as error:
            raise ValueError(
                f"{error} in row {row}, for the prompt {problem.prompt!r} and the completion {completion!r}"
            ) from error
    return found


def read_steps(steps: Any, completion: str) -> list[Step]:
    """The steps of one completion.

    Raises:
        ValueError: If they are not (end, mark) in ascending order, with ends within the completion and finite marks.
    """
    try:
        found = [Step(operator.index(end), finite(mark)) for end, mark in steps]
        if [end for end, _ in found] != sorted({end for end, _ in found if 0 < end <= len(completion)}):
            raise ValueError("ends")
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        raise ValueError(
            f"steps must be pairs (end, mark): ends ascending, from 1 to the {len(completion)} characters of the "
            f"completion, marks finite numbers; got {str(steps)[:80]}"
        ) from error
    return found


def finite(score: Any) -> float:
    """A score as a float.

    Raises:
        ValueError: If it is not a finite number of at most `LARGEST` in size.
    """
    try:
        value = float(score)
    except (ValueError, TypeError, OverflowError, RuntimeError):
        value = math.nan
    if not abs(value) <= LARGEST:  # NaN, too
        raise ValueError(f"a reward must be a finite number, at most {LARGEST:g} in size; got {str(score)[:80]}")
    return value
