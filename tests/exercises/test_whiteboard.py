"""The whiteboard: clocks that never block, the checkers' verdicts, and a report that holds for any state."""

import re
from pathlib import Path

import nbformat
import pytest
import torch
from IPython.core.formatters import DisplayFormatter

import apparatus
from rlhf_book.exercises import CHAPTERS, EXERCISES
from rlhf_book.whiteboard import TASKS, Whiteboard

ROOT = Path(__file__).resolve().parents[2]

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


def shown(verdict):
    return DisplayFormatter().format(verdict)[0]


def test_an_untouched_stub_is_no_try_and_its_clock_goes_on(board, clock):
    board.start(FIRST)
    clock.now += 40
    verdict = board.check(FIRST, untouched)
    assert not verdict
    assert not verdict.begun
    assert "The clock goes on." in shown(verdict)["text/plain"]
    assert "The clock goes on." in shown(verdict)["text/html"]
    clock.now += 40
    assert board.seconds(FIRST) == 80
    assert row(board, FIRST)[2:4] == ["not yet", "1 min 20 s"]
    assert board.check(FIRST, right(FIRST))
    assert row(board, FIRST)[2:4] == ["passed", "1 min 20 s"]


def test_two_blocks_run_in_a_row_leave_the_clock_running_in_silence(board, clock):
    board.start(FIRST)
    clock.now += 0.5
    assert shown(board.check(FIRST, untouched)) == {}
    clock.now += 100
    assert board.seconds(FIRST) == 100.5


def test_a_stub_after_a_real_try_does_not_stop_the_clock(board, clock):
    board.start(FIRST)
    clock.now += 30
    board.check(FIRST, wrong(FIRST))
    board.check(FIRST, untouched)
    clock.now += 500
    assert board.check(FIRST, right(FIRST))
    assert row(board, FIRST)[2:4] == ["passed at try 2", "8 min 50 s"]


def test_all_cells_at_once_leave_no_second_on_any_clock_and_none_running(board, clock):
    for task in TASKS:
        board.start(task.id)
        clock.now += 0.2
        assert shown(board.check(task.id, untouched)) == {}
    assert board.report().markdown.startswith("**0 of 12 passed**.\n")
    clock.now += 1000
    assert all(board.seconds(task.id) == 0 for task in TASKS)
    assert all(row(board, task.id)[3] == "–" for task in TASKS)


def test_hints_and_solutions_are_told_in_the_report(board):
    board.hint(FIRST)
    assert row(board, FIRST)[2] == "not yet, after the hint"
    assert "my_masked_mean" in board.solution(SECOND).markdown
    board.hint(SECOND)
    for name in (FIRST, SECOND):
        board.check(name, right(name))
        board.solution(name)  # read after it was passed, it changes nothing
    assert row(board, FIRST)[2] == "passed, after the hint"
    assert row(board, SECOND)[2] == "passed, after the solution"
    assert board.report().markdown.startswith("**2 of 12 passed**, 2 of them after a hint or the solution.\n")
    assert "grpo-dead-groups" in board.hint("grpo-dead-groups").markdown  # of any exercise, on the board or not
    with pytest.raises(ValueError, match="there is no exercise"):
        board.solution("grpo-dead-group")


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


# ── answers that are almost right ────────────────────────────────────────────────────────────────────────────────────

log_sigmoid = torch.nn.functional.logsigmoid


def mean_to_a_number(x, mask):
    return x[mask != 0].mean().item()


def mean_of_the_finite(x, mask):
    return x[torch.isfinite(x)].mean()


def clamped_dpo(chosen, rejected, ref_chosen, ref_rejected, beta):
    margin = (chosen - ref_chosen) - (rejected - ref_rejected)
    return -log_sigmoid((beta * margin).clamp(-20, 20)).mean()


def dpo_with_a_safety(chosen, rejected, ref_chosen, ref_rejected, beta):
    margin = (chosen - ref_chosen) - (rejected - ref_rejected)
    return -torch.log(torch.sigmoid(beta * margin) + 1e-8).mean()


def dpo_of_the_chosen_gradient(chosen, rejected, ref_chosen, ref_rejected, beta):
    return -log_sigmoid(beta * ((chosen.detach() - ref_chosen) - (rejected - ref_rejected))).mean()


def reward_loss_of_the_rejected(chosen, rejected):
    return -log_sigmoid(chosen.detach() - rejected).mean()


def logprobs_with_a_safety(logits, ids, temperature):
    p = (logits[:, :-1] / temperature).softmax(-1) + 1e-9
    return p.log().gather(-1, ids[:, 1:, None]).squeeze(-1)


def advantage_without_its_argument(rewards, group_size, eps=1e-4):
    groups = rewards.view(-1, group_size)
    centred, spread = groups - groups.mean(1, keepdim=True), groups.std(1, keepdim=True)
    return (centred * (spread > 1e-6) / (spread + 1e-4)).flatten()


@pytest.mark.parametrize(
    ("name", "answer", "words"),
    [
        ("board-masked-mean", mean_to_a_number, "cut off from `x`"),
        ("board-masked-mean", mean_of_the_finite, "you return"),
        ("board-dpo", clamped_dpo, "you return"),
        ("board-dpo", dpo_with_a_safety, "you return"),
        ("board-dpo", dpo_of_the_chosen_gradient, "its gradient with respect to `chosen` and `rejected` is not"),
        (
            "board-reward-loss",
            reward_loss_of_the_rejected,
            "gradient with respect to chosen and rejected is [0, ",
        ),
        ("board-logprobs", logprobs_with_a_safety, "you return"),
        ("grpo-advantage", advantage_without_its_argument, "Epsilon is 1e-4 whatever is passed"),
    ],
)
def test_an_answer_that_is_almost_right_is_refused(name, answer, words):
    verdict = EXERCISES[name].check(answer)
    assert not verdict
    assert words in verdict.message


def test_which_tasks_are_judged_by_values_alone():
    found = [number for number, task in enumerate(TASKS, start=1) if not task.exercise.gradient_of]
    assert found == [3, 4, 5]


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
