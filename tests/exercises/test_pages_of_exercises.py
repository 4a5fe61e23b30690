"""What stands on the pages: statements and stubs in the notebooks, solutions on pages of their own, links both ways."""

import ast
import inspect
import re
from functools import cache
from pathlib import Path

import nbformat
import pytest

import apparatus
import solutions
from rlhf_book.exercises import BUGS, CHAPTERS, EXERCISES

ROOT = Path(__file__).resolve().parents[2]

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
FOLDERS = [chapter.__name__.rpartition(".")[2].replace("_", "-") for chapter in CHAPTERS]
HIDDEN = [exercise.solution for exercise in EXERCISES.values()]
HIDDEN += [function for bug in BUGS.values() for function in (bug.mended, bug.reveals)]


def squeezed(text):
    """A text without comments, layout and the formatter's commas."""
    return re.sub(r"\s+|,(?=\s*[)\]}])", "", re.sub(r"#.*", "", text))


def body(function):
    """The code of a function below its docstring."""
    source = inspect.getsource(function)
    _documentation, *statements = ast.parse(source).body[0].body
    return "\n".join(ast.get_source_segment(source, statement) for statement in statements)


@cache
def hidden_texts():
    """What no notebook may show: the code of solutions by their names, and the morals of bugs."""
    bodies = {function.__name__: squeezed(body(function)) for function in HIDDEN}
    return bodies, {bug.id: squeezed(bug.moral) for bug in BUGS.values()}


def shown(notebook):
    """Everything that a notebook shows: cells and outputs."""
    for cell in notebook.cells:
        yield cell, cell.source
        for output in cell.get("outputs", ()):
            yield cell, str(output.get("text", "")) + "".join(map(str, output.get("data", {}).values()))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_solution_stands_in_a_notebook(path):
    bodies, morals = hidden_texts()
    for cell, text in shown(nbformat.read(path, as_version=4)):
        text, origin = squeezed(text), str(cell.metadata.get("from", ""))
        assert [name for name, code in bodies.items() if code in text] == []
        assert [name for name, moral in morals.items() if moral in text] == []
        if not origin.endswith("/stub"):
            assert [name for name in bodies if f"def{name}(" in text] == []


def test_a_solution_in_a_notebook_would_be_found():
    for function in HIDDEN:
        assert len(squeezed(body(function))) > 20
        assert squeezed(body(function)) in squeezed(inspect.getsource(function))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_stub_prints_nothing_and_repeats_no_import(path):
    stubs, blocks = [], []
    for cell in nbformat.read(path, as_version=4).cells:
        match str(cell.metadata.get("from", "")).split("/"):
            case ["exercise", _, "stub"]:
                stubs.append(cell)
                blocks.append(re.findall(r"^(?:from|import) .*", cell.source, re.MULTILINE))
            case ["bug", _, "symptom"]:
                blocks.append(re.findall(r"^(?:from|import) .*", cell.source, re.MULTILINE))
    lines = [line for block in blocks for line in block]
    assert len(set(lines)) == len(lines)
    assert all(cell.outputs == [] for cell in stubs)


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_of_exercises_has_its_page_of_solutions(name):
    page = f"book/solutions/{name}"
    assert page in apparatus.pages_of_the_book()
    text = (ROOT / f"{page}.md").read_text(encoding="utf-8")
    assert f"```{{generated}} solutions:chapter {name}\n```" in text
    assert "public, and a checker is no exam" in text


def test_every_solution_stands_on_one_page_and_leads_back():
    places, found = apparatus.pages_of_exercises(), []
    assert set(places) == {*EXERCISES, *BUGS}
    for name in FOLDERS:
        parts = re.split(r"^## `(.*)`$", solutions.chapter(name), flags=re.MULTILINE)[1:]
        for item, text in zip(parts[::2], parts[1::2], strict=True):
            source = {**EXERCISES, **BUGS}[item]
            assert apparatus.solutions_page(item) == f"book/solutions/{name}"
            assert f"<exercise-{item}>`" in text
            assert source.hint in text
            assert source.solution_markdown in text
            found.append(item)
    assert sorted(found) == sorted(places)


def test_a_statement_leads_to_its_solution():
    for name in (*EXERCISES, *BUGS):
        kind = "exercise" if name in EXERCISES else "bug"
        text = apparatus.rendered(f"{kind}/{name}/statement", "notebooks/x", []).source
        assert f"(../{apparatus.solutions_page(name)}.md#{name})" in text
        assert f'`hint("{name}")`' in text
        assert f'`solution("{name}")`' in text
        assert (f'`check("{name}", ' in text) == (kind == "bug")


def test_there_is_no_page_for_what_does_not_exist():
    known = (
        "there are no exercises for 'grop'; there are some for language-models, policy-gradients, reward-models, kl-div"
    )
    with pytest.raises(ValueError, match=known):
        solutions.chapter("grop")
