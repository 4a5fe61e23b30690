"""Plans name what exists and count what they say; sheets are blank, plain, and the same for the same seed."""

import ast
import inspect
import re
import sys
from pathlib import Path

import nbformat
import pytest

from rlhf_book.course import VARIANTS, choice
from rlhf_book.exercises import EXERCISES

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "book" / "_ext"), str(ROOT / "book" / "_tools")]

import course  # noqa: E402
import course_pages  # noqa: E402
import install_cell  # noqa: E402
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
    known = {"whiteboard"}
    for week in plan.weeks:
        known |= set(week.chapters)
        for name in week.exercises:
            page = course_pages.chapter_of(name).removeprefix("notebooks/").removesuffix(numbering.DEPTH)
            assert page in known, f"{name} is set before {page} is read"


def test_ten_weeks_read_every_chapter_that_the_page_does_not_name():
    printed = course_pages.plan("ten-weeks")
    for chapter in PLANS["ten-weeks"].left_out:
        assert f"../notebooks/{chapter}.ipynb" in printed.partition("Not read in this plan: ")[2]
    assert len(PLANS["ten-weeks"].left_out) < 6


def test_the_week_that_calls_itself_the_heaviest_is():
    plan = PLANS["ten-weeks"]
    reading = {week.number: week.reading for week in plan.weeks}
    named = [week.number for week in plan.weeks if "heaviest reading" in week.wrong]
    assert named == [max(reading, key=reading.get)]


def test_what_does_not_exist_is_refused():
    good = {"title": "a", "point": "b", "chapters": ["grpo"], "readings": ["shao2024grpo"], "exercises": ["grpo-k3"]}
    good |= {"prepare": "c", "wrong": "d"}
    assert course_pages._week(3, good).name == "week-03"
    for field, wrong in (("chapters", "no-chapter"), ("readings", "nobody1999"), ("exercises", "grpo-k9")):
        with pytest.raises(ValueError, match=wrong):
            course_pages._week(3, good | {field: [wrong]})
    with pytest.raises(ValueError, match="expected"):
        course_pages._week(3, {**good, "homework": "e"})
    with pytest.raises(ValueError, match="no plan"):
        course_pages.plan("ten-days")


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
    flags = set(re.findall(r"`(--[a-z-]+)`", PAGE))
    source = (ROOT / "book" / "_tools" / "grade.py").read_text()
    assert flags == {"--minutes", "--memory-gb", "--isolation", "--without-walls"}
    assert all(f'"{flag}"' in source for flag in flags)


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
