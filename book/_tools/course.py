"""Write the handouts of a course: `python book/_tools/course.py --plan ten-weeks --seed 7 --out _build/course`.

One notebook a week, week-01.ipynb and so on, in plain Markdown: what is read, and its exercises, blank, with their
points. No hint and no solution stands in it. The seed draws a convention for every exercise that has some; the same
seed writes the same bytes. `make course PLAN=five-weeks SEED=7` hands both over.

With `--answers` it writes the lecturer's key instead, into a folder of its own: the same sheets, filled in.
"""

import argparse
import inspect
import os
import sys
import textwrap
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "book" / "_pages"), str(ROOT / "book" / "_tools"), str(ROOT / "notebooks")]

import course_answers  # noqa: E402
import install_cell  # noqa: E402

import course_pages  # noqa: E402
import notebooks  # noqa: E402
import numbering  # noqa: E402
from data_files import title_of  # noqa: E402
from rlhf_book.course import choice, exercise_for  # noqa: E402

HAND_IN = """\
## Before you hand in

Choose *Restart Kernel and Run All Cells* and look at every verdict. Leave the names of the functions as they are: they
are looked for by name. Cells of your own may stand anywhere. What a cell prints is not read, `%` and `!` commands are
not run, and a cell that takes longer than a minute is left out. Save, and hand in this file as `{name}.ipynb`."""

START = """\
import math  # noqa: F401

import torch  # noqa: F401
from torch import Tensor  # noqa: F401

from rlhf_book.course import checker

check = checker(seed={seed})  # knows the conventions of this course"""


def stub(name: str, seed: int) -> str:
    """The cell to fill in: the signature, and nothing of the body."""
    text = course_pages.exercise(name).stub
    if choice(name, seed) is None:
        return text
    head, _, rest = text.partition('"""')
    tail = rest.partition('"""')[2]
    return f'{head}"""As the statement says, with the convention of this course."""{tail}'


def answer(name: str, seed: int) -> str:
    """The cell, filled in: the convention that the seed draws, or the book's solution."""
    picked, solution = choice(name, seed), course_pages.exercise(name).solution
    code = course_answers.answer(name, picked.name) if picked else inspect.getsource(solution).rstrip()
    return f'{code}\n\n\ncheck("{name}", {solution.__name__})'


def handout(
    plan: course_pages.Plan, week: course_pages.Week, seed: int, *, filled: bool = False
) -> nbformat.NotebookNode:
    """One week's notebook; `filled` is the lecturer's."""
    cells: list[nbformat.NotebookNode] = []

    def add(kind: str, source: str, **metadata: object) -> None:
        make = nbformat.v4.new_code_cell if kind == "code" else nbformat.v4.new_markdown_cell
        cells.append(make(source, id=f"{week.name}-{len(cells):02d}", metadata=metadata))

    numbers = numbering.chapters()
    chapters = [
        f"- {numbers[f'notebooks/{c}']}. {course_pages.title(c)}: {course_pages.reading_minutes(c)} minutes"
        for c in week.chapters
    ]
    papers = [f"- {course_pages.papers()[key]}" for key in week.readings]
    head = [
        f"# Week {week.number}: {week.title}",
        f"{plan.title}, course seed {seed}. This sheet has {week.solving} points: a point a minute.",
        *(["**This is the key: it is not handed out.**"] if filled else []),
        f"**Read {plan.read}**",
        "\n".join(chapters),
        "**Papers**",
        "\n".join(papers),
        "The exercises are those of the book. Where a statement says *in this course, unlike in the book*, the last "
        "paragraph counts, and the book's solution is a wrong answer.",
    ]
    add("markdown", "\n\n".join(head))
    add("code", install_cell.source(install_cell.address()), tags=install_cell.TAGS)
    add("code", START.format(seed=seed))
    for number, name in enumerate(week.exercises, start=1):
        task = exercise_for(name, seed)
        statement = textwrap.dedent(task.statement).strip()
        where = course_pages.chapter_of(name)
        title = f"## {week.number}.{number} {task.title[:1].upper()}{task.title[1:]} ({task.minutes} points)"
        origin = f"From chapter {numbers[where]}, *{title_of(where)}*."
        add("markdown", f"{title}\n\n{origin}\n\n{statement}")
        add("code", answer(name, seed) if filled else stub(name, seed))
    if not filled:
        add("markdown", HAND_IN.format(name=week.name))
    notebook = nbformat.v4.new_notebook(cells=cells)
    notebook.metadata = nbformat.from_dict({"kernelspec": notebooks.KERNEL, "language_info": notebooks.LANGUAGE})
    return notebook


def write(plan: course_pages.Plan, seed: int, out: Path, *, filled: bool = False) -> list[Path]:
    """All handouts of a plan, or its key."""
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for week in plan.weeks:
        path = out / f"{week.name}{'-answers' if filled else ''}.ipynb"
        text = nbformat.writes(handout(plan, week, seed, filled=filled), version=nbformat.NO_CONVERT)
        path.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
        written.append(path)
    return written


def main(arguments: list[str]) -> None:
    """Read the command line, write, say where."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--plan", choices=list(course_pages.plans()), default=os.environ.get("PLAN", "ten-weeks"))
    help_of_seed = "of the course: a new one every time it is held"
    parser.add_argument("--seed", type=int, default=os.environ.get("SEED", "0"), help=help_of_seed)
    parser.add_argument("--out", type=Path, help="_build/course, or _build/course-answers")
    parser.add_argument("--answers", action="store_true", help="the lecturer's key for this seed, and no handouts")
    given = parser.parse_args(arguments)
    plan = course_pages.plans()[given.plan]
    given.out = given.out or ROOT / "_build" / ("course-answers" if given.answers else "course")
    if given.answers:
        print(f"{len(write(plan, given.seed, given.out, filled=True))} keys in {given.out}: keep them to yourself")
        return
    written = write(plan, given.seed, given.out)
    varied = [name for week in plan.weeks for name in week.exercises if choice(name, given.seed)]
    exercises = sum(len(week.exercises) for week in plan.weeks)
    print(f"{len(written)} handouts in {given.out}")
    print(f"{exercises} exercises, {len(varied)} of them with a convention of this course")
    if not install_cell.address():
        print(
            "Their first cell cannot install the library: _config.yml names no address (repository: url). Write it "
            "with book/_tools/install_cell.py, or let everybody install the book beforehand."
        )


if __name__ == "__main__":
    main(sys.argv[1:])
