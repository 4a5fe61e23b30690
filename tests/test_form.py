"""The form of a chapter: a core that is read in one sitting, and a depth of sections that stand alone.

FORM lists the chapters that have it. Minutes are those of the page "how to read": words, equations, visible lines of
code and figures, without exercises.
"""

import ast
import builtins
import re
from pathlib import Path

import nbformat
import pytest

import book_facts
from data_files import cells_of

ROOT = Path(__file__).resolve().parents[1]

PICTURES = {"image/svg+xml", "image/png"}
FORM = (
    "from-zero",
    "language-models",
    "policy-gradients",
    "reward-models",
    "kl-divergence",
    "trust-regions",
    "ppo-clip",
    "gae",
    "ppo-rlhf",
    "grpo",
    "rloo",
    "dr-grpo",
    "dapo",
    "gspo",
    "mixture-of-experts",
    "soft-gates",
    "kimi",
    "off-policy",
    "distillation",
    "anatomy",
    "rlvr",
    "deepseek-r1",
    "process-rewards",
    "test-time-scaling",
    "self-play",
    "judges",
    "agents",
    "diagnosis",
    "making-it-fast",
    "scaling-up",
    "real-model",
    "choosing",
)
# Notebooks that derive nothing: blank functions to write. They have no main point, no depth and no questions.
PRACTICE = ("whiteboard",)
CORES = [ROOT / "notebooks" / f"{name}.ipynb" for name in FORM]
DEPTHS = [path for name in FORM if (path := ROOT / "notebooks" / f"{name}-in-depth.ipynb").exists()]
CORE_MINUTES, MAIN_POINT_MINUTES, COLUMN = 24, 5, 88
# Sections of a depth that need no first line of their own.
CLOSING = {"Papers", "Summary"}

each_core = pytest.mark.parametrize("path", CORES, ids=lambda path: path.stem)
each_depth = pytest.mark.parametrize("path", DEPTHS, ids=lambda path: path.stem)


def sections(path):
    """What stands before the first heading of the second level, then the sections: (title, cells)."""
    parts = [("", [])]
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "markdown" and (heading := re.match(r"## (.+)", cell.source)):
            parts.append((heading[1], []))
        parts[-1][1].append(cell)
    return parts


def test_every_notebook_is_a_core_a_depth_or_practice():
    named = {path.stem for path in (*CORES, *DEPTHS)} | set(PRACTICE)
    assert named == {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}


@pytest.mark.parametrize("name", PRACTICE)
def test_practice_sets_exercises_and_derives_nothing(name):
    """It claims no idea and asks no question: whatever does so is a chapter, and has a chapter's form."""
    cells = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4).cells
    assert [cell.metadata.concepts for cell in cells if "concepts" in cell.metadata] == []
    origins = [str(cell.metadata.get("from", "")) for cell in cells]
    assert sum(origin.endswith("/stub") for origin in origins) >= 5
    assert [origin for origin in origins if origin.startswith("question/")] == []


@each_core
def test_a_core_is_read_in_one_sitting(path):
    assert book_facts.estimate(cells_of(path)) <= CORE_MINUTES


@each_core
def test_the_main_point_comes_within_five_minutes(path):
    cells = cells_of(path)
    marked = [n for n, cell in enumerate(cells) if book_facts.MAIN_POINT in cell["metadata"].get("tags", [])]
    assert len(marked) == 1, f"one cell should say the main point, and have the tag {book_facts.MAIN_POINT}"
    assert book_facts.estimate(cells[: marked[0] + 1]) <= MAIN_POINT_MINUTES


@pytest.mark.parametrize(
    "path", [*CORES, *DEPTHS, *(ROOT / "notebooks" / f"{name}.ipynb" for name in PRACTICE)], ids=lambda path: path.stem
)
def test_code_fits_the_column_of_the_page(path):
    cells = nbformat.read(path, as_version=4).cells
    shown = [cell for cell in cells if cell.cell_type == "code" and "install" not in cell.metadata.get("tags", [])]
    lines = [line for cell in shown for line in cell.source.splitlines()]
    assert [line for line in lines if len(line) > COLUMN] == []


@each_core
def test_a_core_asks_three_questions_of_an_interview(path):
    cells = nbformat.read(path, as_version=4).cells
    asked = [cell for cell in cells if str(cell.metadata.get("from", "")).startswith("question/")]
    in_words = sum("Three questions of an interview" in cell.source for cell in cells)
    assert len(asked) == 3 or in_words == 1


def test_there_is_a_depth_under_its_core_in_the_contents():
    assert DEPTHS
    contents = (ROOT / "_toc.yml").read_text(encoding="utf-8")
    for path in DEPTHS:
        core = path.stem.removesuffix("-in-depth")
        assert f"- file: notebooks/{core}\n        sections:\n          - file: notebooks/{path.stem}\n" in contents
        assert f"({path.name})" in (ROOT / "notebooks" / f"{core}.ipynb").read_text(encoding="utf-8")


@each_depth
def test_a_section_says_first_what_it_assumes_and_what_it_gives(path):
    for title, cells in sections(path)[1:]:
        if title not in CLOSING:
            first = cells[0].source.split("\n\n")[1]
            assert re.match(r"\*\*Assumes\*\*\s.+\s\*\*Gives\*\*\s.+", first, re.DOTALL), title


@each_depth
def test_the_code_of_a_section_needs_the_first_cells_and_no_other_section(path):
    (_, first), *others = sections(path)
    common = set(dir(builtins)) | names(first)[0]
    for title, cells in others:
        bound, used = names(cells)
        assert used - bound - common == set(), f"{title}: defined in another section, or nowhere"


def test_a_name_from_another_section_is_found():
    cells = [nbformat.v4.new_code_cell(text) for text in ("def f(x):\n    return x + y", "z = [a for a in range(3)]")]
    assert names(cells) == ({"f", "x", "z", "a"}, {"x", "y", "a", "range"})


def names(cells):
    """The names that code cells bind anywhere, and those that they use."""
    bound, used = set(), set()
    for cell in cells:
        if cell.cell_type != "code":
            continue
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.Name):
                (used if isinstance(node.ctx, ast.Load) else bound).add(node.id)
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                bound.add(node.name)
            elif isinstance(node, ast.arg):
                bound.add(node.arg)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                bound |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ExceptHandler) and node.name:
                bound.add(node.name)
    return bound, used


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_picture_is_also_told(path):
    """Every printed picture has an alternative text (the browser's test sees the page; this one sees it in no time)."""
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    drawn = [cell for cell in cells if any(PICTURES & {*output.get("data", {})} for output in cell.outputs)]
    told = [cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "") for cell in drawn]
    assert [cell.id for cell, text in zip(drawn, told, strict=True) if len(text) < 20] == []
