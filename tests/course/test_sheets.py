"""Plans name what exists and count what they say; sheets are blank, plain, and the same for the same seed."""

import ast
import inspect
import re
import sys
from functools import partial
from pathlib import Path

import nbformat
import pytest

from rlhf_book.course import VARIANTS, bounds, choice, grading, session, variants
from rlhf_book.exercises import EXERCISES
from rlhf_book.whiteboard import TASKS

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "book" / "_tools"))

import course  # noqa: E402
import install_cell  # noqa: E402

import course_pages  # noqa: E402
import numbering  # noqa: E402

PLANS = course_pages.plans()
WEEKS = [pytest.param(plan, week, id=f"{plan.name}-{week.number}") for plan in PLANS.values() for week in plan.weeks]
PAGE = (ROOT / "book" / "course.md").read_text(encoding="utf-8")


# ── plans ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_plans_are_those_that_the_page_shows():
    assert {name: len(plan.weeks) for name, plan in PLANS.items()} == {"ten-weeks": 10, "five-weeks": 5, "weekend": 4}
    assert re.findall(r"course_pages:plan (\S+)", PAGE) == list(PLANS)


@pytest.mark.parametrize(("plan", "week"), WEEKS)
def test_a_week_takes_what_its_plan_allows(plan, week):
    low, high = plan.hours
    assert 60 * low <= plan.minutes(week) <= 60 * high
    assert week.solving == sum(EXERCISES[name].minutes for name in week.exercises)
    assert 1 <= week.running <= 10


def taught_by(exercise):
    """The chapters of which one has to be read for it. The whiteboard teaches nothing: it sends you back to one."""
    page = course_pages.chapter_of(exercise).removeprefix("notebooks/").removesuffix(numbering.DEPTH)
    if page != "whiteboard":
        return {page}
    back = {task.page.removesuffix(numbering.DEPTH) for task in TASKS if task.id == exercise}
    return back | ({"from-zero"} if "language-models" in back else set())  # both teach shift, gather and mask


def test_an_exercise_of_the_whiteboard_needs_the_chapter_that_it_sends_back_to():
    assert taught_by("board-dpo") == {"reward-models"}
    assert "board-dpo" not in sum(PLANS["five-weeks"].exercises.values(), [])  # which reads no reward models
    assert taught_by("grpo-advantage") == {"grpo"}


@pytest.mark.parametrize("plan", PLANS.values(), ids=lambda plan: plan.name)
def test_nothing_comes_twice_and_exercises_come_after_their_chapter(plan):
    order = list(numbering.chapters())
    chapters = [chapter for week in plan.weeks for chapter in week.chapters]
    assert len(set(chapters)) == len(chapters)
    places = [order.index(f"notebooks/{chapter}") for chapter in chapters]
    assert places == sorted(places), "chapters are read in the order of the book"
    assert sorted(chapters + plan.left_out) == sorted(
        page.removeprefix("notebooks/") for page in order if not page.endswith(numbering.DEPTH)
    )
    exercises = [name for week in plan.weeks for name in week.exercises]
    assert len(set(exercises)) == len(exercises)
    known = set()
    for week in plan.weeks:
        known |= set(week.chapters)
        for name in week.exercises:
            assert taught_by(name) & known, f"{name} is set before {taught_by(name)} is read"


def test_ten_weeks_read_every_chapter_that_the_page_does_not_name():
    printed = course_pages.plan("ten-weeks")
    for chapter in PLANS["ten-weeks"].left_out:
        assert f"../notebooks/{chapter}.ipynb" in printed.partition("Not read in this plan: ")[2]
    assert len(PLANS["ten-weeks"].left_out) < 6


def test_the_syllabus_stands_first_and_is_one_screen():
    """A row a week: chapters, what students can do afterwards, and the hours that the plan below it counts."""
    plan = PLANS["ten-weeks"]
    before = PAGE.partition("```{generated} course_pages:syllabus ten-weeks")[0]
    assert len(before.split()) < 60
    assert "##" not in before
    head, _, *rows, total = course_pages.syllabus("ten-weeks").splitlines()
    assert head == "| week | chapters | after it students can | hours |"
    for week, row in zip(plan.weeks, rows, strict=True):
        _, name, chapters, can, hours, _ = (cell.strip() for cell in row.split("|"))
        assert name == f"{week.number}. {week.title}"
        assert re.findall(r"notebooks/(.*?)\.ipynb", chapters) == list(week.chapters)
        assert can == week.can
        assert 8 <= len(can.split()) <= 20
        assert hours == f"{plan.minutes(week) / 60:.1f}"
    assert f"all of it takes {total.split('|')[4].strip()} hours" in course_pages.plan("ten-weeks")
    with pytest.raises(ValueError, match="weekend, week 1 does not say"):
        course_pages.syllabus("weekend")
    with pytest.raises(ValueError, match="no plan"):
        course_pages.syllabus("ten-days")


def test_a_week_that_calls_itself_the_heaviest_is():
    plan = PLANS["ten-weeks"]
    reading = {week.number: week.reading for week in plan.weeks}
    named = [week.number for week in plan.weeks if "heaviest reading" in week.wrong]
    assert named in ([], [max(reading, key=reading.get)])
    assert reading[10] >= sorted(reading.values())[-3]  # "much reading"


def test_what_does_not_exist_is_refused():
    good = {"title": "a", "point": "b", "chapters": ["grpo"], "readings": ["shao2024grpo"], "exercises": ["grpo-k3"]}
    good |= {"prepare": "c", "wrong": "d", "agenda": [{60: "e"}], "links": {"show": ["grpo#4. One batch by hand"]}}
    assert course_pages._week(3, good).name == "week-03"
    for field, wrong in (("chapters", "no-chapter"), ("readings", "nobody1999"), ("exercises", "grpo-k9")):
        with pytest.raises(ValueError, match=wrong):
            course_pages._week(3, good | {field: [wrong]})
    for links in ({"show": ["grpo#4. No such heading"]}, {"show": ["no-page"]}, {"sing": []}):
        with pytest.raises(ValueError, match="no page|no heading|sing"):
            course_pages._week(3, good | {"links": links})
    with pytest.raises(ValueError, match="mean nothing"):
        course_pages._week(3, {**good, "homework": "e"})
    entry = {"title": "a", "who": "b", "session": 60, "hours": [0, 9], "read": "together", "projects": []}
    assert course_pages._plan("mine", entry | {"weeks": [good]}).session == 60
    with pytest.raises(ValueError, match="an agenda of 60 minutes, expected 90"):
        course_pages._plan("mine", entry | {"weeks": [good], "session": 90})
    with pytest.raises(ValueError, match="30 minutes for the project one-cell, expected 600"):
        course_pages._plan("mine", entry | {"weeks": [good | {"project": 30}], "projects": ["one-cell"]})
    with pytest.raises(ValueError, match="no plan"):
        course_pages.plan("ten-days")


def test_the_project_is_in_the_hours_and_a_meeting_has_three_parts():
    for plan in PLANS.values():
        printed = course_pages.plan(plan.name)
        assert plan.projects
        for week in plan.weeks:
            assert plan.minutes(week) == plan.session + week.reading + week.solving + week.project
            row = (
                f"| {week.number} | {week.title} | {week.reading} | {week.solving} | {week.project} | {week.running} | "
            )
            assert f"{row}{plan.minutes(week) / 60:.1f} | " in printed
            assert len(week.agenda) == 3
            assert week.links
            assert all(target in printed for targets in week.links.values() for target in targets)
    assert "read together" in course_pages.plan("weekend")
    assert sum(week.project for week in PLANS["ten-weeks"].weeks) == 600


def test_the_rubrics_add_up_and_are_printed():
    printed = course_pages.project_pages()
    for project in course_pages.projects():
        assert sum(part["points"] for part in project["rubric"]) == 100
        assert all(part["name"] in printed and part["half"] in printed for part in project["rubric"])


def test_the_page_counts_the_variants_and_names_commands_that_exist():
    assert len(VARIANTS) == 17
    assert "For seventeen\n  exercises" in PAGE
    assert all(f"`{name}`" in course_pages.variants() for name in VARIANTS)
    weeks = PLANS["ten-weeks"].weeks
    every = [name for week in weeks for name in week.exercises]
    varied = [name for name in every if name in VARIANTS]
    of, points = sum(week.solving for week in weeks), sum(EXERCISES[name].minutes for name in varied)
    said = f"{len(varied)} of {len(every)} exercises and {points} of {of} points"
    assert said in " ".join(PAGE.split())
    assert "\ncourse: env" in (ROOT / "Makefile").read_text()
    from rlhf_book.course.isolation import WAYS, Limits

    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == list(WAYS)
    limits = Limits()
    said = (limits.seconds, limits.cell_seconds, limits.memory, limits.processes, limits.file_bytes)
    assert said == (300.0, 60.0, 4 * 2**30, 32, 32 * 2**20)  # "five minutes ... 32 MB" of the page
    assert f"the {['', 'one', 'two', 'three'][grading.NEWEST]} newest are graded" in PAGE
    assert session.AGAIN * limits.seconds == 600.0  # "ten minutes in all"
    assert f"and {bounds.SPARE} for the walls" in PAGE
    flags = set(re.findall(r"`(--[a-z-]+)`", PAGE))
    source = (ROOT / "book" / "_tools" / "grade.py").read_text()
    assert flags == {"--minutes", "--memory-gb", "--isolation", "--without-walls"}
    assert all(f'"{flag}"' in source for flag in flags)
    assert '"--answers"' in (ROOT / "book" / "_tools" / "course.py").read_text()


# ── sheets ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def sheets():
    return {(plan.name, week.name): course.handout(plan, week, 7) for plan in PLANS.values() for week in plan.weeks}


@pytest.mark.parametrize(("plan", "week"), WEEKS)
def test_a_sheet_sets_its_exercises_blank_and_with_points(plan, week, sheets):
    sheet = sheets[plan.name, week.name]
    nbformat.validate(sheet)
    text = "\n".join(cell.source for cell in sheet.cells)
    assert "```{" not in text  # plain Markdown
    assert "solution(" not in text.replace("the book's solution", "")
    assert "hint(" not in text
    for name in week.exercises:
        task = EXERCISES[name]
        assert f"({task.minutes} points)" in text
        assert f'check("{name}", {task.solution.__name__})' in text
        assert task.where not in text
        body = inspect.getsource(task.solution).split('"""')[2]
        for line in (line.strip() for line in body.splitlines()):
            assert len(line) < 12 or line not in text, f"{name}: {line} stands in the sheet"
    install, *_ = (cell for cell in sheet.cells if cell.cell_type == "code")
    assert install.source == install_cell.source(install_cell.address())
    assert all(not cell.outputs for cell in sheet.cells if cell.cell_type == "code")


def test_a_sheet_runs_from_top_to_bottom_and_says_nothing_of_blank_functions(sheets):
    shown = []
    from rlhf_book.exercises import Verdict

    plan = PLANS["ten-weeks"]
    for sheet in (sheets[plan.name, week.name] for week in plan.weeks):
        names: dict = {}
        for cell in sheet.cells:
            if cell.cell_type != "code" or "install" in cell.metadata.get("tags", []):
                continue
            tree = ast.parse(cell.source)
            last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, "cell", "exec"), names)
            if last is not None:
                shown.append(eval(compile(ast.Expression(last.value), "cell", "eval"), names))
    assert len(shown) == sum(len(week.exercises) for week in plan.weeks)
    assert all(isinstance(verdict, Verdict) and not verdict.begun for verdict in shown)


@pytest.mark.parametrize(("name", "seed"), [("weekend", 3), ("five-weeks", 7)])
def test_the_key_answers_every_exercise_of_its_seed(name, seed, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("rlhf_book.course.exercise_for", partial(variants.exercise_for, count=20))
    course.main(["--plan", name, "--seed", str(seed), "--out", str(tmp_path), "--answers"])
    plan = PLANS[name]
    assert f"{len(plan.weeks)} keys in {tmp_path}" in capsys.readouterr().out
    shown = {}
    for week in plan.weeks:
        key = nbformat.read(tmp_path / f"{week.name}-answers.ipynb", as_version=4)
        nbformat.validate(key)
        assert "it is not handed out" in key.cells[0].source
        names: dict = {}
        for cell in key.cells:
            if cell.cell_type == "code" and "install" not in cell.metadata.get("tags", []):
                tree = ast.parse(cell.source)
                last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
                exec(compile(tree, "cell", "exec"), names)
                if last is not None:
                    verdict = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
                    shown[verdict.exercise] = verdict
    assert list(shown) == [exercise for week in plan.weeks for exercise in week.exercises]
    assert all(shown.values()), shown
    varied = [exercise for exercise in shown if choice(exercise, seed)]
    assert varied
    assert all("with this course's convention" in shown[exercise].message for exercise in varied)


def test_a_variant_is_asked_for_in_words_and_the_books_docstring_is_gone(sheets):
    sheet = sheets["ten-weeks", "week-05"]
    text = "\n".join(cell.source for cell in sheet.cells)
    for name in ("grpo-dead-groups", "grpo-advantage", "grpo-clipped-loss", "grpo-k3"):
        assert choice(name, 7).asks in text
        documented = inspect.getdoc(EXERCISES[name].solution)
        assert documented not in text
    assert text.count("In this course, unlike in the book:") == 4


def test_one_seed_writes_the_same_bytes_and_another_one_other_sheets(tmp_path, capsys):
    plan = PLANS["five-weeks"]
    first = [path.read_bytes() for path in course.write(plan, 7, tmp_path / "a")]
    again = [path.read_bytes() for path in course.write(plan, 7, tmp_path / "b")]
    other = [path.read_bytes() for path in course.write(plan, 8, tmp_path / "c")]
    assert first == again
    assert all(a != b for a, b in zip(first, other, strict=True))  # the seed stands in each
    without_seed = [text.replace(b"seed=8", b"seed=7").replace(b"course seed 8", b"course seed 7") for text in other]
    assert without_seed != first
    course.main(["--plan", "weekend", "--seed", "3", "--out", str(tmp_path / "d")])
    assert "4 handouts" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "d").iterdir()) == [f"week-0{k}.ipynb" for k in (1, 2, 3, 4)]
