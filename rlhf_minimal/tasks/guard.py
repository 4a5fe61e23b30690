"""Verifiers and reward functions are somebody's code on a model's output: they may raise, hang, or return nonsense.

What goes wrong costs its completion: it gets 0, is counted, and the run goes on. The first one is told with a warning.
What can be cut off, and what cannot, is said in `time_limit`.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field

from rlhf_minimal.tasks.base import Problem, Task
from rlhf_minimal.tasks.rewards import RewardFunction, WrongCount, ask, check_scores, finite
from rlhf_minimal.time_limit import in_time

SECONDS = 10.0  # that a verifier may take for one completion


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
    task: Task, problems: Sequence[Problem], completions: Sequence[str], *, seconds: float = SECONDS
) -> Scored:
    """The task's verdict on every completion, whatever its verifier does.

    Args:
        task: Its `verify` is called for each.
        problems: B of them.
        completions: B answers.
        seconds: What one call may take.

    Returns:
        B finite numbers, 0 where the verifier raised, took longer, or returned no finite number.

    Raises:
        ValueError: If there are not as many problems as completions.

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
        for row in range(len(scored.values), len(completions)):
            scored.faults.pop(row, None)
            try:
                in_time(lambda row=row: verify(row), seconds)  # type: ignore[misc]
            except TimeoutError as error:
                del scored.values[row:]
                scored.values.append(0.0)
                scored.faults[row] = f"TimeoutError: {error}"
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
        seconds: What scoring one completion may take.

    Returns:
        B finite numbers, 0 where it raised or took longer.

    Raises:
        ValueError: If what it returns is not one finite number per completion. That is no accident of a completion: the
            function, or the reward model behind it, is broken.
    """
    scored = Scored([])
    try:
        found = list(in_time(lambda: ask(reward, problems, completions, step), seconds * len(completions)))
    except WrongCount:
        raise
    except (Exception, SystemExit):
        found = []
        for row, (completion, problem) in enumerate(zip(completions, problems, strict=True)):
            try:
                found.append(in_time(lambda p=problem, c=completion: ask(reward, [p], [c], step)[0], seconds))  # type: ignore[misc]
            except WrongCount:
                raise
            except (Exception, SystemExit) as error:
                scored.faults[row] = f"{type(error).__name__}: {error}"
                found.append(0.0)
    scored.values = check_scores(found, problems, completions)
    return _told(scored, problems, completions)


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
