"""The clock: what a completion says, what its steps are worth, and which clocks have a name."""

import random
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlhf_minimal.cli.starts import ASSETS, shipped_start
from rlhf_minimal.tasks import Problem, Step, checked_steps, get_task
from rlhf_minimal.tasks.clock import clock

NAMES = ("clock", "clock10", "clock:long", "clock:slip")
TEXTS = st.text(alphabet="0123456789+.:=abcdefghijklmnopqrstuvwxyz", max_size=40)


def hand(moves, hours):
    """The hour, by turning the hand one letter at a time."""
    at = 0
    for move in moves:
        for _ in range(move):
            at = 0 if at == hours - 1 else at + 1
    return string.ascii_lowercase[at]


@pytest.mark.parametrize("name", NAMES)
def test_a_problem_says_where_the_hand_ends(name):
    task = get_task(name)
    hours = len(task.alphabet) - 14
    counts = set()
    for problem in task.problems("train", 500, seed=0):
        assert len(problem.prompt) == (61 if name == "clock:long" else 33)
        moves = [int(c) for c in problem.prompt if c.isdigit()]
        counts.add(len(moves))
        assert problem.answer == hand(moves, hours)
        assert task.verify(f"={problem.answer}", problem) == 1.0
        assert task.verify(problem.answer, problem) == task.verify(f"={problem.answer}a", problem) == 0.0
    assert counts == set(range(2, 29 if name == "clock:long" else 15))


@pytest.mark.parametrize("name", NAMES)
def test_the_teacher_slips_as_often_as_he_should_and_jumps_right(name):
    task, rng, marks, at_once = get_task(name), random.Random(0), [], 0
    problems = task.problems("train", 2000, seed=1)
    for problem in problems:
        text = task.teacher(problem, rng)
        steps = task.steps(text, problem)
        assert len(text.partition("=")[0]) == 2 * len(steps)
        marks += [mark for _, mark in steps]
        at_once += not steps
        if all(mark for _, mark in steps):
            assert task.verify(text, problem) == 1.0
    slip = 0.25 if name == "clock:slip" else 0.05
    assert 1 - sum(marks) / len(marks) == pytest.approx(slip, abs=0.03)
    assert at_once / len(problems) == pytest.approx(0.12 if name == "clock:slip" else 0.625, abs=0.05)


@given(TEXTS)
def test_a_step_is_marked_by_the_one_before_it_alone(text):
    """Read move by move: no other implementation is asked."""
    task, problem = get_task("clock10"), Problem("3+8+5+............:", "g")
    due, at = "385" + "." * 40, "a"
    for number, (end, mark) in enumerate(task.steps(text, problem)):
        assert end == 2 * number + 2
        move, hour = text[end - 2], text[end - 1]
        turned = 0 if due[number] == "." else int(due[number])
        assert mark == (move == due[number] and hour == hand([ord(at) - ord("a"), turned], 10))
        at = hour if hour.islower() and hour.isalpha() else "a"
    assert "=" not in text[: 2 * len(task.steps(text, problem))]


def test_a_wrong_move_spoils_itself_and_not_the_next_one():
    problem = Problem("3+8+5+9+............:", "f")
    assert get_task("clock10").steps("3d8c5h9g.g=g", problem) == [(2, 1), (4, 0), (6, 1), (8, 1), (10, 1)]
    assert get_task("clock10").steps("3d5i", problem) == [(2, 1), (4, 0)]  # a move left out
    assert get_task("clock10").steps("=f", problem) == []


def test_the_final_answer_stands_behind_the_sign():
    final = get_task("clock").final
    assert [final(text) for text in ("3d8l=l", "=l", "3d8l", "", "3d=")] == ["l", "l", None, None, None]
    assert get_task("addition").final("0975") == "0975"  # the whole completion, where a task says nothing


def test_a_picture_shows_the_hand_and_marks_what_is_wrong():
    task, problem = get_task("clock10"), Problem("3+8+....:", "b")
    assert task.picture("3d8b=b", problem).splitlines() == [
        "     abcdefghij",
        "     ^",
        "3 d  ...^",
        "8 b  .^",
        "= b  .^",
    ]
    wrong = task.picture("3d8c=?", problem).splitlines()
    assert [line.endswith("  x") for line in wrong] == [False, False, False, True, True]


@given(TEXTS)
def test_any_text_has_a_picture_with_a_line_for_each_step(text):
    task, problem = get_task("clock10"), Problem("3+8+....:", "b")
    lines = task.picture(text, problem).splitlines()
    assert len(lines) == 2 + len(task.steps(text, problem)) + (task.final(text) is not None)


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("clock:low=12,high=14", "clock"),
        ("clock:hours=10,high=4", "clock10"),
        ("clock:slip,low=12", "clock-slip"),
        ("clock:long,low=20", "clock-long"),
        ("clock:hours=12", "clock12"),
    ],
)
def test_a_clock_with_settings_takes_the_start_that_was_made_for_its_prompts(name, start):
    assert shipped_start(get_task(name)) == ASSETS / start
    assert get_task(name).name == name


@pytest.mark.parametrize("name", ["clock:tall", "clock:slots=3", "clock:low=x", "clock:low=3,long", "clock:low"])
def test_a_clock_that_does_not_exist_is_named(name):
    with pytest.raises(ValueError, match=r"cannot read the clock .* comes long or slip or nothing, then numbers"):
        get_task(name)


@pytest.mark.parametrize("settings", ["hours=9", "hours=27", "low=0", "low=5,high=4", "high=17"])
def test_a_clock_out_of_range(settings):
    with pytest.raises(ValueError, match="10 to 26 hours and 1 <= low <= high <= 16; got"):
        get_task(f"clock:{settings}")


def test_a_task_without_a_checker_says_so():
    with pytest.raises(ValueError, match="'addition' cannot check steps: give a step reward of your own"):
        checked_steps(get_task("addition"))
    task = clock("mine", hours=10)
    assert checked_steps(task)(prompts=[""], completions=["3d"], problem=[Problem("3+:", "d")]) == [[Step(2, 1.0)]]
