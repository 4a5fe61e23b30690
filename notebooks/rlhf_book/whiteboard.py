"""The whiteboard: twelve functions that interviews ask one to write, each with a clock, and a report at the end.

    from rlhf_book.whiteboard import Whiteboard
    board = Whiteboard()
    board.start("board-dpo")
    board.check("board-dpo", my_dpo_loss)
    board.report()

The tasks are exercises of the book, judged by their own checkers. The clock is a note of when something was started:
nothing waits for it, and nothing is cut off when the suggested minutes are over.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .exercises import EXERCISES, Exercise, Shown, Verdict, next_hint, solution
from .exercises.cells import FOR_READERS

_PASSED_BY = 3.0  # seconds; less is no attempt, as when all cells are run at once


@dataclass(frozen=True)
class Task:
    """One function to write.

    Args:
        id: of the exercise whose checker judges it.
        name: what an interviewer would call it.
        page: the chapter to read again, a notebook's name.
        section: its heading there.
        statement: what is asked, where the exercise's own words need the chapter around them.
    """

    id: str
    name: str
    page: str
    section: str
    statement: str = ""

    @property
    def exercise(self) -> Exercise:
        """The exercise that it is."""
        return EXERCISES[self.id]

    @property
    def where(self) -> str:
        """Where to read again, in words."""
        return f"`{self.page}`, *{self.section}*"

    @property
    def markdown(self) -> str:
        """The statement, as the whiteboard prints it."""
        if not self.statement:
            return self.exercise.markdown.partition("\n\n")[2]
        return " ".join(self.statement.split())

    @property
    def stub(self) -> str:
        """The cell to fill in: the exercise's, judged by the whiteboard."""
        return self.exercise.stub.replace('\ncheck("', '\nboard.check("')

    @property
    def needs(self) -> tuple[str, ...]:
        """What has to be imported before that cell can run; `board` has the check, the hint and the solution."""
        return tuple(name for name in self.exercise.needs if name not in FOR_READERS)


TASKS = (
    Task(
        "board-logprobs",
        "Log-probs, with the shift",
        "language-models",
        "3. The loss, and what its gradient pushes",
    ),
    Task(
        "board-masked-mean",
        "A masked mean",
        "language-models",
        "6. Which tokens count",
    ),
    Task(
        "grpo-advantage",
        "The advantage within a group",
        "grpo",
        "2. From a reward to a gradient",
    ),
    Task(
        "grpo-leave-one-out",
        "A leave-one-out baseline",
        "rloo",
        "2. From REINFORCE to leave-one-out",
        """
        Write `my_leave_one_out(rewards, group_size)`. It takes the rewards of a batch, `[B]`, in which the `group_size`
        completions of one prompt stand together, and returns, `[B]`, each reward minus the mean of the *other* rewards of
        its group.
        """,
    ),
    Task(
        "gae-recursion",
        "GAE",
        "gae",
        "4. From scratch",
        """
        Write `my_gae(rewards, values, mask, gamma, lam)`, the first three `[B, T]`: the generalized advantage estimates,
        `[B, T]`. After the last token with mask 1 the value is 0. Padding has mask 0, and so has a tool's output in the
        middle of a completion, a *hole*. A hole is stepped over: what follows a token is the next token with mask 1, however
        far away. Where the mask is 0 the advantage is 0, and the numbers in `rewards` and `values` there mean nothing.
        """,
    ),
    Task(
        "ppo-clip-loss",
        "PPO's clipped loss",
        "ppo-clip",
        "4. From scratch",
    ),
    Task(
        "gae-value-loss",
        "The clipped value loss",
        "gae-in-depth",
        "The critic: where it is read, and its loss",
    ),
    Task("grpo-k3", "The k3 penalty", "kl-divergence", "2. The values"),
    Task("grpo-clipped-loss", "GRPO's loss", "grpo", "3. From scratch"),
    Task("board-gspo-ratio", "GSPO's ratio", "gspo", "3. From scratch"),
    Task(
        "board-reward-loss",
        "A reward model's loss",
        "reward-models",
        "3. From a noisy comparison to a loss",
    ),
    Task(
        "board-dpo",
        "DPO's loss",
        "reward-models",
        "4. DPO: the reward model that is a policy",
    ),
)  # in the order in which they build on each other


@dataclass
class _Sheet:
    """What is known of one task."""

    seconds: float = 0.0  # up to the last stop of its clock
    since: float | None = None  # when its clock was started, while it runs
    tries: int = 0
    passed: bool = False
    seen: str = ""  # of hint and solution the one that says more


class _GoesOn(Verdict):
    """A stub on a clock that runs. Unlike any other stub it is shown: time is passing."""

    def _ipython_display_(self) -> None:
        raise NotImplementedError


class Whiteboard:
    """A clock a task, the checkers, and a report. At most one clock runs at a time.

    Args:
        clock: what tells the seconds.

    Example:
        >>> board = Whiteboard()
        >>> board.start("board-dpo")
        The clock runs: `board-dpo`, 6 minutes suggested.
        >>> board.check("board-dpo", lambda *given: ...)
        Not yet (board-dpo). This is still the stub: write your code where it returns `...`.
        >>> board.open
        12
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sheets = {task.id: _Sheet() for task in TASKS}
        self._hinted: dict[str, int] = {}  # exercise -> level of its last hint here

    @property
    def open(self) -> int:
        """How many tasks have not been passed."""
        return sum(not sheet.passed for sheet in self._sheets.values())

    def seconds(self, task: str) -> float:
        """Seconds on one task's clock, which stands still once the task is passed."""
        sheet = self._sheet(task)
        running = 0.0 if sheet.since is None else self._clock() - sheet.since
        return sheet.seconds + running

    def start(self, task: str) -> Shown:
        """Start the clock of a task, or let it go on. Any other clock stops, and keeps its seconds.

        Raises:
            ValueError: no task of the whiteboard has this id.
        """
        sheet = self._sheet(task)
        if sheet.passed:
            return Shown(f"`{task}` is passed; its clock stands still.")
        self._forget_those_passed_by()
        self.stop()
        sheet.since = self._clock()
        minutes = EXERCISES[task].minutes
        return Shown(f"The clock runs: `{task}`, {minutes} minutes suggested.")

    def stop(self) -> None:
        """Stop the clock that runs, for a pause. `start` lets it go on."""
        now = self._clock()
        for sheet in self._sheets.values():
            if sheet.since is not None:
                sheet.seconds += now - sheet.since
                sheet.since = None

    def check(self, task: str, function: Any) -> Verdict:
        """Judge an answer. The clock of the task stops when it is right; the checker's own time never counts.

        A stub as it was printed is no try, and its clock goes on. A clock that has run for less than three seconds when
        another one is started, or when the report is made, was only passed by, and goes back to zero.

        Raises:
            ValueError: no task of the whiteboard has this id.
        """
        sheet = self._sheet(task)
        runs = sheet.since is not None
        if runs:
            self.stop()
        verdict = EXERCISES[task].check(function)
        if verdict.begun and not sheet.passed:
            sheet.tries += 1
            sheet.passed = verdict.passed
        if runs and not sheet.passed:
            sheet.since = self._clock()
            if not verdict.begun and sheet.seconds >= _PASSED_BY:
                words = f"{verdict.message} The clock goes on."
                return _GoesOn(task, False, words, begun=False)
        return verdict

    def hint(self, exercise: str, level: int | None = None) -> Shown:
        """The next hint of any exercise; for a task that is not passed yet the report notes it.

        A board counts for itself: on a new one the first hint comes first.
        """
        shown = next_hint(self._hinted, exercise, level)
        self._note(exercise, "the hint")
        return shown

    def solution(self, exercise: str) -> Shown:
        """The solution of any exercise; for a task that is not passed yet the report notes it."""
        shown = solution(exercise)
        self._note(exercise, "the solution")
        return shown

    def _note(self, exercise: str, seen: str) -> None:
        sheet = self._sheets.get(exercise)
        if sheet and not sheet.passed and sheet.seen != "the solution":
            sheet.seen = seen

    def _forget_those_passed_by(self) -> None:
        for task, sheet in self._sheets.items():
            if not sheet.tries and self.seconds(task) < _PASSED_BY:
                sheet.seconds, sheet.since = 0.0, None

    def report(self) -> Shown:
        """Which tasks are passed, how long they took, and what to read again for the others."""
        self._forget_those_passed_by()
        rows = [
            "| | task | | your time | suggested | read again |",
            "| --:|:-- |:-- | --:| --:|:-- |",
        ]
        for number, task in enumerate(TASKS, start=1):
            sheet = self._sheets[task.id]
            taken = self.seconds(task.id)
            spent = _minutes(taken) if taken else "–"
            again = "" if sheet.passed else task.where
            cells = (
                str(number),
                task.name,
                _state(sheet),
                spent,
                f"{task.exercise.minutes} min",
                again,
            )
            rows.append(f"| {' | '.join(cells)} |")
        return Shown(f"{self._summary()}\n\n" + "\n".join(rows))

    def _summary(self) -> str:
        passed = [task for task in TASKS if self._sheets[task.id].passed]
        counted = f"**{len(passed)} of {len(TASKS)} passed**"
        helped = sum(bool(self._sheets[task.id].seen) for task in passed)
        if helped:
            counted += f", {helped} of them after a hint or the solution"
        timed = [task for task in passed if self.seconds(task.id)]
        if not timed:
            return f"{counted}."
        together = _minutes(sum(self.seconds(task.id) for task in timed))
        suggested = sum(task.exercise.minutes for task in timed)
        within = sum(
            self.seconds(task.id) <= 60 * task.exercise.minutes for task in timed
        )
        return (
            f"{counted}. On the clock: {len(timed)}, in {together} of {suggested} min suggested, "
            f"{within} within their own minutes."
        )

    def _sheet(self, task: str) -> _Sheet:
        if task not in self._sheets:
            known = ", ".join(self._sheets)
            raise ValueError(
                f"the whiteboard has no task {task!r}: expected one of {known}"
            )
        return self._sheets[task]


def _state(sheet: _Sheet) -> str:
    state = "passed" if sheet.passed else "not yet"
    if sheet.passed and sheet.tries > 1:
        state += f" at try {sheet.tries}"
    if sheet.tries and not sheet.passed:
        state += f", {sheet.tries} {'try' if sheet.tries == 1 else 'tries'}"
    return f"{state}, after {sheet.seen}" if sheet.seen else state


def _minutes(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
