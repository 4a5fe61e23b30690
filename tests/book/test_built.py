"""Every function of the core has one home, and its home shows or uses it; the lines of the chapters add up."""

import ast
import re
from functools import cache
from pathlib import Path

import nbformat
import pytest

import built
from tests import lines

ROOT = Path(__file__).resolve().parents[2]

PUBLIC = [piece for piece in built.pieces() if piece.public]
ADDING = [home for home in built.order() if home != built.COMMANDS and any(piece.home == home for piece in PUBLIC)]


@cache
def used_by(chapter):
    """What a chapter's code uses of the core, directly or through it, by full names."""
    return frozenset(built.reached(set(built.named_in(chapter)), built.pieces()))


@cache
def text_of(chapter, *kinds):
    """The text of a chapter's cells."""
    cells = nbformat.read(ROOT / "notebooks" / f"{chapter}.ipynb", as_version=4).cells
    return "\n".join(cell.source for cell in cells if not kinds or cell.cell_type in kinds)


def is_at_home(piece):
    """Whether the home of a function uses it or shows its name."""
    if piece.home in ("", built.COMMANDS):
        return bool(piece.home)
    return piece.path in used_by(piece.home) or bool(re.search(rf"\b{re.escape(piece.name)}\b", text_of(piece.home)))


def test_every_function_of_the_core_has_a_home():
    """A new one is named in a docstring ("Chapter: ...") or in book/data/homes.yml."""
    assert [piece.path for piece in PUBLIC if not built.own_home(piece)] == []
    assert {f"{piece.file}:{piece.name}" for piece in PUBLIC} == set(lines.public_names())


def test_the_sections_of_from_zero_are_those_of_the_loop():
    """All sections of train.py, in their order; a new one, or another name, is said in `built.WRITTEN_FIRST`."""
    of_the_loop = re.findall(
        r"^# ---- (.*?) -+$", (built.PACKAGE / "train.py").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert [one for found in built.WRITTEN_FIRST.values() for one in found] == of_the_loop
    of_the_start = re.findall(r"^## (.*)$", text_of(built.START, "markdown"), re.MULTILINE)
    written = [name for name in of_the_start if name in built.WRITTEN_FIRST]
    assert written == list(built.WRITTEN_FIRST)
    assert all(name in built.loop_sections() for name in written)


def test_no_home_is_said_of_what_is_gone():
    known = {place for piece in PUBLIC for place in (piece.file, f"{piece.file}:{piece.name}")}
    assert [place for place in built.told() if place not in known] == []


def test_every_home_shows_or_uses_what_lives_there():
    assert [f"{piece.path}: {piece.home}" for piece in PUBLIC if not is_at_home(piece)] == []


def test_the_lines_of_the_chapters_add_up_to_the_core():
    assert built.total() == lines.core(lines.rooms()) == sum(map(built.added, built.order()))
    assert built.yours(built.order()[-1]) == built.total()
    assert built.added(built.START) == 0


@pytest.mark.parametrize("chapter", ADDING)
def test_a_chapter_that_adds_ends_with_what_it_has_added(chapter):
    notebook = nbformat.read(ROOT / "notebooks" / f"{chapter}.ipynb", as_version=4)
    assert notebook.cells[-1].metadata.get("from") == "built"
    assert notebook.cells[-1].source == built.line(chapter), "python book/_tools/generate.py writes it"


def test_no_other_chapter_says_that_it_adds():
    for chapter in set(built.order()[:-1]) - set(ADDING):
        notebook = nbformat.read(ROOT / "notebooks" / f"{chapter}.ipynb", as_version=4)
        assert all(cell.metadata.get("from") != "built" for cell in notebook.cells), chapter
        with pytest.raises(ValueError, match="adds nothing"):
            built.line(chapter)


def test_the_page_prints_every_function_once_in_the_order_of_the_book():
    page = built.sections()
    for piece in built.pieces():
        if piece.public:
            kind = "class" if isinstance(piece.node, ast.ClassDef) else "def"
            text = built.shortened(piece)
            assert re.search(rf"^{kind} {piece.name}\b", text, re.MULTILINE)
            assert page.count(text) == 1, piece.path
    links = re.findall(r"^## \[.*\]\((?:../notebooks/)?(.*?)\.\w+\)$", page, re.MULTILINE)
    assert [Path(link).name for link in links] == [name for name in built.order() if built.added(name)]


def test_a_name_is_followed_through_imports():
    """What a chapter imports from the package's face or from a package's own file is found where it is defined."""
    code = (
        "from rlhf_minimal import policy_loss\nfrom rlhf_minimal.functional import gates\nf = gates.clip, policy_loss"
    )
    tree = ast.parse(code)
    names = built.mentioned(tree, built.names_in(tree))
    assert {"rlhf_minimal.policy_loss", "rlhf_minimal.functional.gates.clip"} <= names
    assert built.resolved("rlhf_minimal.policy_loss") == "rlhf_minimal.objective.policy_loss"
    assert "rlhf_minimal.objective.prepare" in used_by("grpo")
    assert "rlhf_minimal.fit.fit" not in used_by("gspo")


def test_a_docstring_is_cut_after_its_first_paragraph():
    (piece,) = (piece for piece in built.pieces() if piece.path == "rlhf_minimal.functional.gates.clip")
    text = built.shortened(piece)
    ast.parse(text)
    assert "Args:" not in text
    assert ast.get_docstring(ast.parse(text).body[0])
