"""Verifiers and reward functions are somebody's code on a model's output: they may raise, hang, or return nonsense.

What goes wrong costs its completion: it gets 0, is counted, and the run goes on. The first one is told with a warning.
Where everything goes wrong in the first step, the code is broken and not the completions: then the run stops.
What can be cut off, and what cannot, is said in `time_limit`.
"""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlhf_minimal.tasks.base import Problem, Task
from rlhf_minimal.tasks.rewards import RewardFunction, WrongCount, ask, check_scores, finite
from rlhf_minimal.time_limit import in_time

SECONDS = 10.0  # that a verifier may take for one completion
LOST = 6  # times that, for all completions together that run out of it
# What all completions of a step may take together is in these units: so much, and a tenth for each of them. A thousand
# that each take a little less than the limit would hold up a step for hours.
TOGETHER = 6


class VerifierWarning(UserWarning):
    """A verifier or reward function has failed; its completion gets 0."""


@dataclass
class Scored:
    """What came out of scoring B completions.

    Attributes:
        values: B finite numbers.
        faults: row -> what went wrong there; its value is 0.
    """

    values: list[float]
    faults: dict[int, str] = field(default_factory=dict)


def verify_all(
    task: Task,
    problems: Sequence[Problem],
    completions: Sequence[str],
    *,
    seconds: float = SECONDS,
    step: int | None = None,
) -> Scored:
    """The task's verdict on every completion, whatever its verifier does.

    Args:
        task: Its `verify` is called for each.
        problems: B of them.
        completions: B answers.
        seconds: What one call may take. All of them may take `TOGETHER` times as long and a tenth more for each, those
            that are cut off `LOST` times; when that is used up, the rest is not looked at.
        step: The number of the training step; None outside of training.

    Returns:
        B finite numbers, 0 where the verifier raised, took longer, or returned no finite number.

    Raises:
        ValueError: If there are not as many problems as completions; if every call of the first step fails.

    Example:
        >>> from dataclasses import replace
        >>> from rlhf_minimal.tasks import get_task
        >>> picky = replace(get_task("even"), verify=lambda completion, problem: 1 / len(completion))
        >>> with warnings.catch_warnings(action="ignore"):
        ...     verify_all(picky, [Problem("1:", "")] * 2, ["22", ""])
        Scored(values=[0.5, 0.0], faults={1: 'ZeroDivisionError: division by zero'})
    """
    if len(problems) != len(completions):
        raise ValueError(f"one completion per problem: got {len(problems)} problems, {len(completions)} completions")
    scored = Scored([])

    def verify(row: int) -> None:
        value = 0.0
        try:
            value = finite(task.verify(completions[row], problems[row]))
        except (Exception, SystemExit) as error:
            scored.faults[row] = f"{type(error).__name__}: {error}"
        scored.values.append(value)

    def verify_the_rest() -> None:
        for row in range(len(scored.values), len(completions)):
            verify(row)

    try:
        in_time(verify_the_rest, seconds)  # one timer for all is cheap, and nearly always all that is needed
    except TimeoutError:
        budget = _Budget(seconds, len(completions))
        for row in range(len(scored.values), len(completions)):
            scored.faults.pop(row, None)
            try:
                budget.call(lambda row=row: verify(row))  # type: ignore[misc]
            except TimeoutError as error:
                del scored.values[row:]
                scored.values.append(0.0)
                scored.faults[row] = f"TimeoutError: {error}"
    _check_not_all(scored, len(completions), step, f"the verifier of {task.name}")
    return _told(scored, problems, completions)


def score_all(
    reward: RewardFunction,
    problems: Sequence[Problem],
    completions: Sequence[str],
    step: int,
    *,
    seconds: float = SECONDS,
) -> Scored:
    """A reward function's numbers for every completion, even if it raises or hangs over some.

    It is called once for all, with the time of all. If that call raises or does not end, every completion is tried in
    a call of its own, so that only those that cannot be scored lose their reward; a function that compares completions
    with each other (or counts calls) then sees one at a time.

    Args:
        reward: In TRL's calling form (see `tasks.rewards`).
        problems: B of them.
        completions: B answers.
        step: Passed on.
        seconds: What scoring one completion may take; one by one, all of them as for `verify_all`.

    Returns:
        B finite numbers, 0 where it raised or took longer.

    Raises:
        ValueError: If what it returns is not one finite number per completion, in a sequence, or if it fails on every
            completion of the first step. That is no accident of a completion: the function, or the reward model behind
            it, is broken.
    """
    scored = Scored([])
    try:
        found = list(in_time(lambda: ask(reward, problems, completions, step), seconds * len(completions)))
    except WrongCount:
        raise
    except (Exception, SystemExit):
        found, budget = [], _Budget(seconds, len(completions))
        for row, (completion, problem) in enumerate(zip(completions, problems, strict=True)):
            try:
                found.append(budget.call(lambda p=problem, c=completion: ask(reward, [p], [c], step)[0]))  # type: ignore[misc]
            except WrongCount:
                raise
            except (Exception, SystemExit) as error:
                scored.faults[row] = f"{type(error).__name__}: {error}"
                found.append(0.0)
        _check_not_all(scored, len(completions), step, "the reward function")
    scored.values = check_scores(found, problems, completions)
    return _told(scored, problems, completions)


class _Budget:
    """The time of completions that are scored one by one."""

    def __init__(self, seconds: float, count: int):
        self.each = seconds
        self.lost = LOST * seconds
        self.all = (TOGETHER + count / 10) * seconds

    def call(self, score: Callable[[], Any]) -> Any:
        """What a call returns, if it returns in its time and in that of all.

        Raises:
            TimeoutError: If not. Whatever the call raises comes through.
        """
        if min(self.lost, self.all) <= 0:
            raise TimeoutError("the completions before have used up the time of all")
        began = time.monotonic()
        try:
            return in_time(score, self.each)
        except TimeoutError:
            self.lost -= self.each
            raise
        finally:  # what a call takes beyond its time, until it can be cut off, is not laid to the others
            self.all -= min(time.monotonic() - began, self.each)


def _check_not_all(scored: Scored, count: int, step: int | None, what: str) -> None:
    if step is not None and step <= 1 < count == len(scored.faults):
        reason = " ".join(scored.faults[0].split())[:400]
        raise ValueError(
            f"{what} fails on all {count} completions of the first step, so nothing can be learnt: {reason}"
        )


def _told(scored: Scored, problems: Sequence[Problem], completions: Sequence[str]) -> Scored:
    if scored.faults:
        row, reason = next(iter(scored.faults.items()))
        reason = " ".join(reason.split())[:200]
        warnings.warn(
            f"a verifier or reward function has failed, and its completion gets 0: {reason} (prompt "
            f"{problems[row].prompt[:80]!r}, completion {completions[row][:80]!r}); `verifier_errors` counts them",
            VerifierWarning,
            stacklevel=3,
        )
    return scored
