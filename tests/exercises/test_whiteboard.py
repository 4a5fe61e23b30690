"""The whiteboard: clocks that never block, the checkers' verdicts, and a report that holds for any state."""

import re
import sys
from pathlib import Path

import nbformat
import pytest
from IPython.core.formatters import DisplayFormatter

from rlhf_book.exercises import CHAPTERS, EXERCISES
from rlhf_book.whiteboard import TASKS, Whiteboard

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "book" / "_ext"))

import apparatus  # noqa: E402

PAGE = ROOT / "notebooks" / "whiteboard.ipynb"
FIRST, SECOND = "grpo-leave-one-out", "board-masked-mean"


class Clock:
    """A clock that stands still until it is told otherwise."""

    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def board(clock):
    return Whiteboard(clock)


def right(name):
    return EXERCISES[name].solution


def wrong(name):
    return EXERCISES[name].mistakes[0].wrong


def untouched(*_):
    return ...


def row(board, name):
    number = [task.id for task in TASKS].index(name) + 1
    (line,) = (line for line in board.report().markdown.splitlines() if line.startswith(f"| {number} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


# ── the clock ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_clock_runs_from_its_start_until_the_answer_is_right(board, clock):
    board.start(FIRST)
    clock.now += 70
    assert not board.check(FIRST, wrong(FIRST))
    assert board.seconds(FIRST) == 70
    clock.now += 20
    assert board.check(FIRST, right(FIRST))
    clock.now += 1000
    assert board.seconds(FIRST) == 90
    assert row(board, FIRST)[2:4] == ["passed at try 2", "1 min 30 s"]
    assert "passed" in board.start(FIRST).markdown
    clock.now += 5
    assert board.seconds(FIRST) == 90


def test_one_clock_at_a_time_and_a_pause_costs_nothing(board, clock):
    board.start(FIRST)
    clock.now += 10
    board.start(SECOND)
    clock.now += 30
    board.stop()
    clock.now += 500
    board.start(FIRST)
    clock.now += 1
    assert (board.seconds(FIRST), board.seconds(SECOND)) == (11, 30)


def test_the_checkers_own_time_does_not_count(board, clock):
    def slow(*given):
        clock.now += 1
        return wrong(FIRST)(*given)

    board.start(FIRST)
    clock.now += 4
    assert not board.check(FIRST, slow)
    clock.now += 2
    assert board.seconds(FIRST) == 6


def test_an_untouched_stub_is_no_try_and_sets_its_clock_back(board, clock):
    board.start(FIRST)
    clock.now += 40
    verdict = board.check(FIRST, untouched)
    assert not verdict.begun
    assert DisplayFormatter().format(verdict)[0] == {}
    clock.now += 40
    assert board.seconds(FIRST) == 0
    assert row(board, FIRST)[2:4] == ["not yet", "–"]


def test_an_answer_without_a_clock_is_judged_without_seconds(board):
    assert board.check(SECOND, right(SECOND))
    assert row(board, SECOND)[2:4] == ["passed", "–"]
    assert board.report().markdown.startswith("**1 of 12 passed**.\n")


def test_a_right_answer_stays_right_when_the_cell_is_blanked_or_broken(board, clock):
    board.start(FIRST)
    clock.now += 3
    board.check(FIRST, right(FIRST))
    for later in (untouched, wrong(FIRST)):
        assert not board.check(FIRST, later)
        assert row(board, FIRST)[2:4] == ["passed", "3 s"]


def test_an_unknown_task_is_named_with_those_there_are(board):
    for call in (board.start, board.seconds, lambda name: board.check(name, untouched)):
        with pytest.raises(ValueError, match="no task 'grpo-dead-groups': expected one of board-logprobs, "):
            call("grpo-dead-groups")


# ── the report ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_report_of_nothing_says_what_there_is(board):
    text = board.report().markdown
    assert text.startswith("**0 of 12 passed**.\n")
    for task in TASKS:
        assert row(board, task.id)[1:] == [task.name, "not yet", "–", f"{task.exercise.minutes} min", task.where]


def test_everything_can_be_passed(board, clock):
    for task in TASKS:
        board.start(task.id)
        clock.now += 60 * task.exercise.minutes + (task.id == FIRST)
        assert board.check(task.id, right(task.id))
    assert board.open == 0
    together = sum(task.exercise.minutes for task in TASKS)
    summary = board.report().markdown.splitlines()[0]
    assert summary == (
        f"**12 of 12 passed**. On the clock: 12, in {together} min 1 s of {together} min suggested, "
        "11 within their own minutes."
    )
    assert all(row(board, task.id)[-1] == "" for task in TASKS)


def test_a_wrong_answer_is_told_what_to_read_again(board):
    board.check(FIRST, wrong(FIRST))
    assert row(board, FIRST)[2] == "not yet, 1 try"
    assert row(board, FIRST)[-1] == "`rloo`, *2. From REINFORCE to leave-one-out*"


# ── the tasks and their page ─────────────────────────────────────────────────────────────────────────────────────


def test_there_are_twelve_and_seven_of_them_are_the_chapters():
    assert len({task.id for task in TASKS}) == len(TASKS) == 12
    own = {exercise.id for exercise in CHAPTERS[-1].EXERCISES}
    assert {task.id for task in TASKS if task.id.startswith("board-")} == own
    assert len(own) == 5


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_the_section_to_read_again_exists(task):
    cells = nbformat.read(ROOT / "notebooks" / f"{task.page}.ipynb", as_version=4).cells
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    assert f"## {task.section}\n" in text


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_a_statement_stands_alone(task):
    """It names the function, and leans on no section, cell or picture of a chapter."""
    assert task.exercise.solution.__name__ in task.markdown
    assert not re.search(r"\b(section|chapter|above|below|the cell)\b", task.markdown)


def test_the_notebook_has_every_task_blank_with_its_clock():
    cells = nbformat.read(PAGE, as_version=4).cells
    origins = [cell.metadata.get("from", "") for cell in cells]
    for task in TASKS:
        own = "exercise" if task.id.startswith("board-") else "whiteboard"
        at = origins.index(f"whiteboard/{task.id}/heading")
        assert origins[at : at + 4] == [
            f"whiteboard/{task.id}/heading",
            f"{own}/{task.id}/statement",
            f"whiteboard/{task.id}/clock",
            f"whiteboard/{task.id}/stub",
        ]
        stub = cells[at + 3]
        assert stub.outputs == []
        assert "return ...  # your code" in stub.source
        assert f'\nboard.check("{task.id}", {task.exercise.solution.__name__})' in stub.source
    assert sum("/stub" in origin for origin in origins) == 12
    assert "**0 of 12 passed**" in str(cells[origins.index("whiteboard/board-dpo/stub") + 2].outputs)


def test_an_exercise_of_a_chapter_keeps_its_chapter():
    places = apparatus.pages_of_exercises()
    for task in TASKS:
        alone = task.id.startswith("board-")
        assert (places[task.id] == "notebooks/whiteboard") == alone
