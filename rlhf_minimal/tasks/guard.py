"""Verifiers and reward functions are somebody's code on a model's output: they may raise, hang, or return nonsense.

What goes wrong costs its completion: it gets 0, is counted, and the run goes on. The first one is told with a warning.

What can be cut off: in the main thread on Linux and macOS a timer interrupts whatever runs in Python, sleeps, waits for
another process, or matches a regular expression. Two things cannot be interrupted so: code of another language that
does not come back, and a loop without end that catches every exception inside. Elsewhere (other threads, Windows) the
call runs in a thread of its own, which is left behind when its time is up: the run goes on, and the abandoned call
goes on beside it until it ends or the process does.
"""

import signal
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlhf_minimal.tasks.base import Problem, Task
from rlhf_minimal.tasks.rewards import RewardFunction, WrongCount, ask, check_scores, finite

SECONDS = 10.0  # that a verifier may take for one completion


class VerifierWarning(UserWarning):
    """A verifier or reward function has failed; its completion gets 0."""


class _TimeIsUp(BaseException):
    """Not an `Exception`: a verifier that catches those must not catch this."""


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


def in_time(call: Callable[[], Any], seconds: float) -> Any:
    """What a call returns, if it returns in time.

    Args:
        call: Takes nothing.
        seconds: After these it is interrupted, or left behind (see above).

    Raises:
        TimeoutError: If its time was up. Whatever the call raises comes through.

    Example:
        >>> in_time(lambda: sum(range(5)), 1.0)
        10
        >>> in_time(lambda: time.sleep(60), 0.01)
        Traceback (most recent call last):
        TimeoutError: it took longer than 0.01 seconds
    """
    seconds = min(seconds, 1e7)  # four months; the system's timer takes no number that is much larger
    by_signal = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    try:
        return (_interrupted if by_signal else _left_behind)(call, seconds)
    except _TimeIsUp:
        raise TimeoutError(f"it took longer than {seconds:g} seconds") from None


def _interrupted(call: Callable[[], Any], seconds: float) -> Any:
    armed = True

    def ring(*signal_and_frame: object) -> None:
        if armed:
            raise _TimeIsUp

    began = time.monotonic()
    handler = signal.signal(signal.SIGALRM, ring)
    # It rings again and again, for a verifier whose `except:` has swallowed the first one.
    others = signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        try:
            return call()
        finally:
            armed = False
    finally:  # twice, since it may ring while the inner one is entered
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if others[0]:  # somebody else's alarm was set: it rings when it would have rung
            signal.setitimer(signal.ITIMER_REAL, max(others[0] - (time.monotonic() - began), 1e-3), others[1])


def _left_behind(call: Callable[[], Any], seconds: float) -> Any:
    found: list[Any] = []
    raised: list[BaseException] = []

    def work() -> None:
        try:
            found.append(call())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    if not found:
        raise _TimeIsUp
    return found[0]
