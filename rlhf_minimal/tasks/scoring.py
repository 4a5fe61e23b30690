"""Calls verifiers and reward functions, which are user code and may raise, hang, or return nonsense on some output.

If such a call fails, its completion gets 0, the failure is counted, and the run goes on. A warning shows the first
failure. If every completion of the first step fails, the code is broken, not the completions: then the run stops.
`timeouts` says which calls can be interrupted.
"""

import math
import operator
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from torch import Tensor

from rlhf_minimal.tasks.base import Problem, Step, Task
from rlhf_minimal.tasks.rewards import RewardFunction, StepReward
from rlhf_minimal.timeouts import VerifierWarning, call_with_timeout

SECONDS = 10.0  # the time limit of one call, which scores one completion
LOST = 6  # all calls that run into their time limit may take this many limits together
# All calls of a step may take this many limits together, and a tenth of a limit more for each completion. Otherwise a
# thousand calls that each end shortly before their limit would take hours.
TOGETHER = 6
LARGEST = 1e15  # size of a reward: sums of squares of many rewards must fit into float32, whose largest is 3.4e38

Result = TypeVar("Result")


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
    in_parts: bool = False,
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
        in_parts: The task's `parts` are asked for instead, which are a list of numbers for each completion.

    Returns:
        B finite numbers, 0 where the verifier raised, took longer, or returned no finite number; or B lists of them,
        empty where it did.

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

    verifier: Callable[[str, Problem], Any] | None = task.parts if in_parts else task.verify
    assert verifier is not None, "a task without parts is not asked for them"

    def verify(problems: Sequence[Problem], completions: Sequence[str]) -> Iterator[Any]:
        for problem, completion in zip(problems, completions, strict=True):
            try:
                said = verifier(completion, problem)
                yield [*map(_finite, said)] if in_parts else _finite(said)
            except (Exception, SystemExit) as error:
                yield error

    # one timer for all completions is cheap, and nearly always enough
    budget = _Budget(seconds, (TOGETHER + len(completions) / 10) * seconds)
    scored = _together_or_one_by_one(verify, problems, completions, seconds, budget, () if in_parts else 0.0)
    return _report(scored, problems, completions, step, f"the verifier of {task.name}")


def score_all(
    reward: RewardFunction | StepReward,
    problems: Sequence[Problem],
    completions: Sequence[str],
    step: int,
    *,
    of_steps: bool = False,
    seconds: float = SECONDS,
) -> Scored:
    """What a reward function or a step reward says of every completion, even if it raises or hangs on some.

    The function is called once for all completions. If that call raises or does not end in time, the function is called
    for each completion alone, so that only those that cannot be scored lose their reward. A function that compares
    completions with each other (or counts calls) then sees one completion at a time.

    Args:
        reward: A function in TRL's calling form (see `tasks.rewards`).
        problems: B of them.
        completions: B answers.
        step: The number of the training step, which the function receives; 0 outside of training.
        of_steps: It is a step reward, which returns a list of steps for each completion.
        seconds: Time limit for one completion. The call for all of them may take as many limits as there are
            completions, and at most as long as all calls of `verify_all` together. If completions are scored one by
            one, each has its limit; all calls that run into it may take `LOST` times as long.

    Returns:
        B finite numbers, 0 where it raised or took longer; or B lists of steps, empty where it did.

    Raises:
        ValueError: If what it returns is not one finite number (or list of steps) per completion, in a sequence, or if
            it fails on every completion of the first step. Then the function, or the reward model behind it, is broken.

    Example:
        >>> pay = lambda completions, **columns: [[(1, 1)], []]
        >>> score_all(pay, [Problem("1:", "")] * 2, ["22", ""], step=1, of_steps=True)
        Scored(values=[[Step(end=1, mark=1.0)], []], faults={})
    """
    call = partial(_ask, reward, step=step, entry="list of steps" if of_steps else "number")
    read: Callable[[Any, str], Any] = read_steps if of_steps else lambda score, completion: _finite(score)
    nothing = () if of_steps else 0.0
    together = min(len(completions), TOGETHER + len(completions) / 10) * seconds
    # The call for all may have been slow and nowhere wrong: then each completion still gets the time that is its own.
    budget = _Budget(seconds, len(completions) * seconds)
    scored = _together_or_one_by_one(call, problems, completions, together, budget, nothing)
    scored.values = _read_each(read, scored.values, problems, completions)
    return _report(scored, problems, completions, step, "the reward function")


def _together_or_one_by_one(
    call: Callable[..., Iterable[Any]],
    problems: Sequence[Problem],
    completions: Sequence[str],
    together: float,
    budget: "_Budget",
    nothing: Any,
) -> Scored:
    """What a call gives for all completions at once, within a time; from where that fails, for one after the other.

    An error that it gives for a completion is that completion's fault.
    """
    given: list[Any] = []
    try:
        call_with_timeout(lambda: given.extend(call(problems, completions)), together)
        values = given
    except _WrongCount:
        raise
    except (Exception, SystemExit):
        values = given.copy()  # a thread that is left behind may still add to the list

    def ask_for(row: int) -> list[Any]:
        return list(call([problems[row]], [completions[row]]))

    for row in range(len(values), len(completions)):
        try:
            values += budget.call(partial(ask_for, row))
        except _WrongCount:
            raise
        except (Exception, SystemExit) as error:
            values.append(error)
    faults = {row: f"{type(x).__name__}: {x}" for row, x in enumerate(values) if isinstance(x, BaseException)}
    return Scored([nothing if row in faults else value for row, value in enumerate(values)], faults)


class _Budget:
    """The time that is left for completions that are scored one by one."""

    def __init__(self, each: float, all: float):
        self.each, self.lost, self.all = each, LOST * each, all

    def call(self, score: Callable[[], Any]) -> Any:
        """What a call returns, if it returns within its own time limit and time is left for all calls.

        Raises:
            TimeoutError: If not. An error that the call raises is not caught.
        """
        if min(self.lost, self.all) <= 0:
            raise TimeoutError("not scored: earlier completions have used up the time for all completions")
        began = time.monotonic()
        try:
            return call_with_timeout(score, self.each)
        except TimeoutError:  # also of the call's own making, which may have come soon
            self.lost -= self._spent_since(began)
            raise
        finally:
            self.all -= self._spent_since(began)

    def _spent_since(self, began: float) -> float:
        """A call may take longer than its limit until it can be interrupted; that time does not count."""
        return min(time.monotonic() - began, self.each)


def _report(
    scored: Scored, problems: Sequence[Problem], completions: Sequence[str], step: int | None, what: str
) -> Scored:
    """The same scores, after a warning that shows the first fault; an error if the first step has nothing else."""
    if not scored.faults:
        return scored
    row, reason = next(iter(scored.faults.items()))
    reason = " ".join(reason.split())
    if step == 1 < len(completions) == len(scored.faults):
        raise ValueError(
            f"{what} fails on all {len(completions)} completions of the first step, so nothing can be learnt: "
            f"{reason[:400]}"
        )
    warnings.warn(
        f"a verifier or reward function has failed, and its completion gets 0: {reason[:200]} (prompt "
        f"{problems[row].prompt[:80]!r}, completion {completions[row][:80]!r}); `verifier_errors` counts them",
        VerifierWarning,
        stacklevel=3,
    )
    return scored


class _WrongCount(ValueError):
    """A reward function has not returned a sequence with one entry for each completion."""


def _ask(
    reward: RewardFunction | StepReward,
    problems: Sequence[Problem],
    completions: Sequence[str],
    step: int,
    *,
    entry: str = "number",
) -> Any:
    """Calls a reward function and checks how many entries it returns, but not their values; `entry` names one.

    Raises:
        _WrongCount: If it returns no sequence (a list, a tuple, an array, a tensor), or one of another length.
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
        raise _WrongCount(
            f"a reward function must return one {entry} per completion, {len(completions)} in a list; got {got}"
        )
    return scores


def _read_each(
    read: Callable[[Any, str], Result], entries: Sequence[Any], problems: Sequence[Problem], completions: Sequence[str]
) -> list[Result]:
    """What a reward function has returned, read entry by entry: `read(entry, completion)` says what an entry means.

    Raises:
        ValueError: If `read` raises one; the message then names the row, counted from 1.

    Example:
        >>> _read_each(read_steps, [[(2, 1)]], [Problem("3+8:", "b")], ["3d=b"])
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
        found = [Step(operator.index(end), _finite(mark)) for end, mark in steps]
        if [end for end, _ in found] != sorted({end for end, _ in found if 0 < end <= len(completion)}):
            raise ValueError("ends")
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        raise ValueError(
            f"steps must be pairs (end, mark): ends ascending, from 1 to the {len(completion)} characters of the "
            f"completion, marks finite numbers; got {str(steps)[:80]}"
        ) from error
    return found


def _finite(score: Any) -> float:
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
