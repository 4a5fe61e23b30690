"""Half points go to who has the thing itself and lacks a case; and every student's file says so, and nothing else."""

import math
import re
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis.strategies import integers, lists, sampled_from, tuples

from rlhf_book.course import VARIANTS, choice, exercise_for, feedback, grading, halves, session
from rlhf_book.course.grading import Grader, Row, grade_all
from rlhf_book.course.variants import apply
from rlhf_book.exercises import EXERCISES
from tests.course.submitted import FULL, IMPORTS, LIMITS, ROOT, SECOND, SEED, WEEKS, hand_in, points

sys.path.insert(0, str(ROOT / "book" / "_tools"))

import course_pages  # noqa: E402

PLANS = course_pages.plans()
USED = sorted({name for plan in PLANS.values() for week in plan.weeks for name in week.exercises})
PAGE = " ".join((ROOT / "book" / "course.md").read_text(encoding="utf-8").split())
DRAWN = 100
LACKS_A_CASE = {  # exercise -> mistakes that the page means: all else is right
    "grpo-clipped-loss": ["_front"],
    "gae-recursion": ["_resets", "_masks_first"],
    "board-dpo": ["_overflows"],
    "grpo-advantage": ["_scores"],
}


def book(name):
    return apply(EXERCISES[name], None, draws=5, count=DRAWN)


# ── who gets them ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", USED)
def test_what_is_no_answer_gets_nothing(name):
    exercise = book(name)
    seen = []

    def first_again(*given):
        if not seen:
            seen.append(exercise.solution(*given))
        return seen[0]

    for nothing in (None, lambda *_: ..., lambda *_: 0.0, lambda *_: 1, lambda *_: True, lambda *_: 1 / 0, first_again):
        assert halves.half(exercise, nothing) == ""


@pytest.mark.parametrize("name", USED)
def test_a_right_one_has_all_batches_and_an_answer_without_knowledge_few(name):
    exercise = book(name)
    assert exercise.rightly_drawn(exercise.solution) == (DRAWN, DRAWN)
    assert halves.divisible(name) == (
        name not in halves.COARSE
        and replace(exercise, count=halves.TRIED, draws=20240205).most_with_one_answer() <= halves.GUESSED
    )


@pytest.mark.parametrize("name", LACKS_A_CASE)
def test_who_lacks_a_case_has_half(name):
    exercise = book(name)
    wrong = {mistake.wrong.__name__: mistake.wrong for mistake in exercise.mistakes}
    for lacks in LACKS_A_CASE[name]:
        assert not exercise.check(wrong[lacks]).passed
        said = halves.half(exercise, wrong[lacks])
        assert re.fullmatch(r"Half of the points: right on the printed batch and on \d+ of 100 hidden ones\.", said)


def test_no_known_mistake_stands_on_the_line():
    """The shares from which the line was taken: far below it, or above."""
    low, high = halves.NOBODY
    assert low < halves.ENOUGH < high
    between = []
    for name in filter(halves.divisible, USED):
        exercise = apply(EXERCISES[name], None, count=halves.COUNTED)
        for mistake in exercise.mistakes:
            right, of = exercise.rightly_drawn(mistake.wrong)
            assert of == halves.COUNTED
            if low <= right / of <= high:
                between.append((name, mistake.wrong.__name__, right / of))
    assert between == []


@pytest.mark.parametrize("name", VARIANTS)
def test_another_courses_answer_has_none(name):
    """The book's solution, and those of other seeds."""
    for picked in VARIANTS[name]:
        exercise = apply(EXERCISES[name], picked, draws=5, count=DRAWN)
        others = [other.answer for other in VARIANTS[name] if other is not picked]
        for copied in (EXERCISES[name].solution, *others):
            assert halves.half(exercise, copied) == ""


def test_the_page_names_what_is_all_or_nothing_and_the_share():
    whole = [name for name in USED if not halves.divisible(name)]
    said = re.search(r"All or nothing are (.*?): there", PAGE)[1]
    assert sorted(re.findall(r"`(.*?)`", said)) == whole
    assert f"at least {100 * halves.ENOUGH:.0f} % of the hidden ones" in PAGE
    low, high = (f"{100 * share:.0f} %" for share in halves.NOBODY)
    assert f"none is right on between {low} and {high} of {halves.COUNTED} batches" in PAGE


# ── in the grader ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def grader(library, way, monkeypatch):
    monkeypatch.setattr(grading, "DRAWS", 40)
    return Grader(WEEKS, SEED, 99, way, LIMITS, library)


def test_half_of_a_sheet_and_the_file_for_its_student(grader, tmp_path):
    """Through the walls: right but for what stands under the mask; a process that ends; and what one student writes."""
    name = WEEKS["week-01"][0]
    drawn = exercise_for(name, SEED, draws=99, count=40)
    lacking = IMPORTS + LACKING[choice(name, SEED).name]
    names: dict = {}
    exec(lacking, names)
    right, of = drawn.rightly_drawn(names["my_masked_mean"])
    assert halves.ENOUGH * of <= right < of
    folder, out = tmp_path / "in", tmp_path / "out"
    hand_in(folder, "anna/week-01.ipynb", lacking, SECOND)
    ends = "def my_masked_mean(x, mask):\n    import os\n    os._exit(0)"
    hand_in(folder, "ben/week-01.ipynb", ends, "raise ValueError('# [a](http://x) ``` <b>')")
    rows = grade_all(
        grader, list(grading.submissions(folder)), out, say=lambda _: None, chapters={name: "chapter 1, *A*"}
    )
    assert points(rows) == [FULL[0] // 2, FULL[1], 0, 0], rows
    assert rows[0].says.startswith(f"Half of the points: right on the printed batch and on {right} of 40 hidden ones. ")
    anna, ben = ((out / "feedback" / f"{who}.md").read_text(encoding="utf-8") for who in ("anna", "ben"))
    assert f"| week-01 | {FULL[0] // 2 + FULL[1]} | {sum(FULL)} |" in anna
    assert rows[0].says in anna
    assert anna.count("Read again: chapter 1, *A*.") == 1
    assert "ben" not in anna
    assert "its process was ended" in ben
    assert "anna" not in ben
    assert "````text\ncell 2 raised ValueError: # [a](http://x) ``` <b>\n````" in ben
    assert (out / "feedback").stat().st_mode & 0o077 == 0
    assert "99" not in anna.replace(str(right), "")  # nothing of the seed


def test_what_half_points_are_asked_for_is_beside_the_clock(grader, tmp_path, monkeypatch):
    """A slow function that is wrong: asking how often it is right takes longer than the notebook may."""
    now, answers = [0.0], []
    monkeypatch.setattr(session, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def slowly(exercise, function):
        for case in exercise.cases[:2]:
            now[0] += 2 * LIMITS.seconds
            answers.append(function(*case.arguments.values()))
        return "Half of the points: slowly."

    monkeypatch.setattr(halves, "half", slowly)
    rows = grader.grade(hand_in(tmp_path, "anna/week-01.ipynb", "def my_masked_mean(x, mask):\n    return 7", SECOND))
    assert points(rows) == [FULL[0] // 2, FULL[1]], rows
    assert answers == [7, 7]


def test_seconds_beside_the_clock_are_bounded_where_somebody_says_so(library, way, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(session, "time", SimpleNamespace(monotonic=lambda: now[0]))
    mine = session.Session(way, library, LIMITS, [])
    for bound, spent, counted in ((math.inf, 500.0, 0.0), (30.0, 20.0, 0.0), (30.0, 50.0, 20.0)):
        left = mine.seconds_left
        with mine.beside(bound):
            assert mine.seconds_left == left + bound
            now[0] += spent
        assert mine.seconds_left == left - counted


LACKING = {
    "squares": "def my_masked_mean(x, mask):\n    return (x**2 * mask).sum() / mask.sum()",
    "row sums": "def my_masked_mean(x, mask):\n    return (x * mask).sum() / len(x)",
}


# ── the files ────────────────────────────────────────────────────────────────────────────────────────────────────────


def row(student="anna", week="week-01", exercise="scale-lora", got=3, says="Right.", notebook="a", note=""):
    return Row(student, week, exercise, got, 8, says, notebook, note)


@given(got=lists(tuples(sampled_from(["a", "b", "c"]), sampled_from(WEEKS["week-01"]), integers(0, 8)), min_size=1))
def test_the_notebook_that_counts_is_the_one_of_the_totals(got):
    """Also of several that have as many points: the file has the sentences of one."""
    each = {(notebook, name): row(exercise=name, got=k, notebook=notebook, says=notebook) for notebook, name, k in got}
    rows = list(each.values())
    best = max(sum(r.points for r in rows if r.notebook == name) for name in {r.notebook for r in rows})
    text = feedback.text("anna", rows, WEEKS, {})
    assert f"## week-01: {best} of " in text
    assert f"anna,{best},,{best}," in grading.totals(rows, WEEKS)
    (counts,) = set(re.findall(r"```text\n(.)\n```", text))
    assert sum(r.points for r in rows if r.notebook == counts) == best


def test_a_full_exercise_sends_nobody_back_and_a_lost_week_is_told():
    again = {"scale-lora": "chapter 3"}
    assert "Read again" not in feedback.text("anna", [row(got=8)], WEEKS, again)
    assert "Read again: chapter 3." in feedback.text("anna", [row(got=7)], WEEKS, again)
    text = feedback.text("anna", [row(week="", exercise="", says="Not graded: no week is known for it.")], WEEKS, again)
    assert "no week is known" in text


def test_names_of_files_stay_in_their_folder_and_apart():
    names = [
        "anna",
        "Anna",
        "anna ",
        "..",
        "../x",
        "a\\nb",
        "Jörg",
        "J\\udcf6rg",
        "con",
        "lpt1",
        "x" * 200,
        "-",
        "=ben",
        "ANNA",
    ]
    files = [feedback.file_name(name) for name in names]
    assert len({file.lower() for file in files}) == len(names)
    assert all(re.fullmatch(r"[a-z0-9_-]{1,93}\.md", file) for file in files)
    assert files[0] == "anna.md"
    as_theirs = {file.removesuffix(".md") for file in files} - set(names)  # somebody who is called as another's file is
    assert len(as_theirs) == len(names) - 2
    assert not {feedback.file_name(name) for name in as_theirs} & set(files)


def test_two_students_have_two_files_also_when_one_takes_the_others_name(tmp_path):
    taken = feedback.file_name("Jörg").removesuffix(".md")
    feedback.write([row("Jörg"), row(taken)], WEEKS, {}, tmp_path, grading.write)
    told = {path.read_text(encoding="utf-8").splitlines()[0] for path in (tmp_path / "feedback").iterdir()}
    assert told == {"# ` Jörg `", f"# ` {taken} `"}


def test_text_from_outside_is_neither_a_link_nor_a_heading():
    says = "`x` raised ```` [a](b) <script>\n# no"
    text = feedback.text("`evil` [x](y)", [row(says=says, notebook="``n``")], WEEKS, {})
    assert text.startswith("# `` `evil` [x](y) ``\n")
    assert "`````text\n`x` raised ```` [a](b) <script> # no\n`````" in text
    assert "``` ``n`` ```" in text


@pytest.mark.parametrize("plan", PLANS.values(), ids=lambda plan: plan.name)
def test_every_exercise_of_a_plan_has_something_to_read_again(plan):
    told = course_pages.read_again(plan)
    assert list(told) == [name for week in plan.weeks for name in week.exercises]
    for text in told.values():
        page = re.search(r"\(`(notebooks/.*\.ipynb)`\)$", text)[1]
        assert (ROOT / page).is_file()
        assert "whiteboard" not in page
