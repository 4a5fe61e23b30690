"""Calls verifiers and reward functions, which are user code and may raise, hang, or return nonsense on some output.

If such a call fails, its completion gets 0, the failure is counted, and the run goes on. A warning shows the first
failure. If every completion of the first step fails, the code is broken, not the completions: then the run stops.
`time_limit` says which calls can be interrupted.
"""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rlhf_minimal.tasks.base import Problem, Task
from rlhf_minimal.tasks.rewards import (
    RewardFunction,
    StepReward,
    WrongCount,
    ask,
    check_scores,
    check_steps,
    finite,
)
from rlhf_minimal.time_limit import in_time

SECONDS = 10.0  # the time limit of one call, which scores one completion
LOST = 6  # all calls that run into their time limit may take this many limits together
# All calls of a step may take this many limits together, and a tenth of a limit more for each completion. Otherwise a
# thousand calls that each end shortly before their limit would take hours.
TOGETHER = 6


class VerifierWarning(UserWarning):
    """A verifier or reward function has failed; its completion gets 0."""


@dataclass
class Scored:
    """The scores of B completions.

    Attributes:
        values: B finite numbers; or B lists of steps.
        faults: row -> the error of that row, whose value is 0.
    """

    values: list[Any]
    faults: dict[int, str] = field(default_factory=dict)


def verify_all(
    task: Task,
    problems: Sequence[Problem],
    completions: Sequence[str],
    *,
    seconds: float = SECONDS,
    step: int | None = None,
) -> Scored:
    """The verifier's score of every completion, even if the verifier fails on some.

    Args:
        task: Its `verify` is called for each.
        problems: B of them.
        completions: B answers.
        seconds: Time limit of one call. All calls may take `TOGETHER` times as long and a tenth more for each
            completion; all calls that run into their limit may take `LOST` times as long. When one of these times is
            used up, the remaining completions are not scored and get 0.
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
        in_time(verify_the_rest, seconds)  # one timer for all completions is cheap, and nearly always enough
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
    return _with_warning(scored, problems, completions)


def score_all(
    reward: RewardFunction,
    problems: Sequence[Problem],
    completions: Sequence[str],
    step: int,
    *,
    seconds: float = SECONDS,
) -> Scored:
    """A reward function's numbers for every completion, even if it raises or hangs on some.

    The function is called once for all completions, with the time of all. If that call raises or does not end, the
    function is called for each completion alone, so that only those that cannot be scored lose their reward. A function
    that compares completions with each other (or counts calls) then sees one completion at a time.

    Args:
        reward: A reward function in TRL's calling form (see `tasks.rewards`).
        problems: B of them.
        completions: B answers.
        step: The number of the training step, which the function receives.
        seconds: Time limit for one completion. If completions are scored one by one, the limits of `verify_all` hold
            for all of them together.

    Returns:
        B finite numbers, 0 where it raised or took longer.

    Raises:
        ValueError: If what it returns is not one finite number per completion, in a sequence, or if it fails on every
            completion of the first step. Then the function, or the reward model behind it, is broken.
    """
    scored = _call_all(reward, problems, completions, step, seconds, "number", 0.0)
    scored.values = check_scores(scored.values, problems, completions)
    return _with_warning(scored, problems, completions)


def mark_all(
    step_reward: StepReward,
    problems: Sequence[Problem],
    completions: Sequence[str],
    step: int,
    *,
    seconds: float = SECONDS,
) -> Scored:
    """The steps of every completion, asked for as `score_all` asks for numbers; none where the step reward fails.

    Example:
        >>> mark_all(lambda completions, **columns: [[(1, 1)], []], [Problem("1:", "")] * 2, ["22", ""], step=1)
        Scored(values=[[Step(end=1, mark=1.0)], []], faults={})
    """
    scored = _call_all(step_reward, problems, completions, step, seconds, "list of steps", ())
    scored.values = check_steps(scored.values, problems, completions)
    return _with_warning(scored, problems, completions)


def _call_all(
    reward: RewardFunction | StepReward,
    problems: Sequence[Problem],
    completions: Sequence[str],
    step: int,
    seconds: float,
    entry: str,
    nothing: Any,
) -> Scored:
    """What a reward function returns, unchecked: asked for all completions at once, or one by one if that fails."""
    scored, call = Scored([]), partial(ask, reward, step=step, entry=entry)
    try:
        scored.values = list(in_time(lambda: call(problems, completions), seconds * len(completions)))
    except WrongCount:
        raise
    except (Exception, SystemExit):
        budget = _Budget(seconds, len(completions))
        for row, (completion, problem) in enumerate(zip(completions, problems, strict=True)):
            try:
                scored.values.append(budget.call(lambda p=problem, c=completion: call([p], [c])[0]))  # type: ignore[misc]
            except WrongCount:
                raise
            except (Exception, SystemExit) as error:
                scored.faults[row] = f"{type(error).__name__}: {error}"
                scored.values.append(nothing)
        _check_not_all(scored, len(completions), step, "the reward function")
    return scored


class _Budget:
    """The time that is left for completions that are scored one by one."""

    def __init__(self, seconds: float, count: int):
        self.each = seconds
        self.lost = LOST * seconds
        self.all = (TOGETHER + count / 10) * seconds

    def call(self, score: Callable[[], Any]) -> Any:
        """What a call returns, if it returns within its own time limit and time is left for all calls.

        Raises:
            TimeoutError: If not. An error that the call raises is not caught.
        """
        if min(self.lost, self.all) <= 0:
            raise TimeoutError("not scored: earlier completions have used up the time for all completions")
        began = time.monotonic()
        try:
            return in_time(score, self.each)
        except TimeoutError:
            self.lost -= self.each
            raise
        finally:  # a call may take longer than its limit until it can be interrupted; that time does not count
            self.all -= min(time.monotonic() - began, self.each)


def _check_not_all(scored: Scored, count: int, step: int | None, what: str) -> None:
    if step is not None and step <= 1 < count == len(scored.faults):
        reason = " ".join(scored.faults[0].split())[:400]
        raise ValueError(
            f"{what} fails on all {count} completions of the first step, so nothing can be learnt: {reason}"
        )


def _with_warning(scored: Scored, problems: Sequence[Problem], completions: Sequence[str]) -> Scored:
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
