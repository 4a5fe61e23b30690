"""Notebooks as Jupyter shows them and as the book reads them; numbers, search words, and links from `make lab`."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import nbformat
import pytest

import apparatus
import equation_index
import notebook_source
import numbering
import search_words

ROOT = Path(__file__).resolve().parents[1]

CHAPTERS = sorted((ROOT / "notebooks").glob("*.ipynb"))
chapters = pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)


def markdown(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]


def markdown_of(page):
    path = ROOT / f"{page}.md"
    return [path.read_text(encoding="utf-8")] if path.is_file() else markdown(ROOT / f"{page}.ipynb")


# ── labels of equations ──────────────────────────────────────────────────────────────────────────────────────────


@chapters
def test_jupyter_shows_no_label_and_the_book_reads_every_one(path):
    for text in markdown(path):
        assert not re.search(r"\$\$[ \t]*\(eq-[^)]*\)", text), "write the label as a comment in the line after the $$"
        found = re.findall(r"<!-- (eq-\S+) -->", text)
        assert equation_index.labels_in(text) == found
        assert equation_index.labels_in(notebook_source.labelled(text)) == found
        assert "<!-- eq-" not in notebook_source.labelled(text), "a label belongs into the line after the closing $$"


def test_a_label_becomes_the_books_form_where_it_stands_behind_an_equation():
    assert notebook_source.labelled("$$\nx\n$$\n<!-- eq-a-b -->\n\ntext") == "$$\nx\n$$ (eq-a-b)\n\ntext"
    for other in ("$$\nx\n$$\n\n<!-- eq-a -->", "text <!-- eq-a -->", "$$\nx\n$$\n<!-- a note -->"):
        assert notebook_source.labelled(other) == other


def test_the_page_of_equations_and_the_chapters_are_labelled_as_before():
    assert len(equation_index.labels_in((ROOT / "book" / "equations.md").read_text(encoding="utf-8"))) > 50
    assert sum(len(equation_index.labels_in(text)) for path in CHAPTERS for text in markdown(path)) >= 20


# ── numbers ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def pages(monkeypatch, tmp_path):
    """A book of three chapters, the second with a depth; exercises in all of them."""
    sets = {
        "notebooks/a": ["exercise/one/statement", "exercise/one/stub", "bug/two/statement", "bug/two/mended"],
        "notebooks/b": ["exercise/three/statement"],
        "notebooks/b-in-depth": ["exercise/four/statement"],
        "notebooks/c": ["question/q/statement", "exercise/five/statement"],
    }
    (tmp_path / "notebooks").mkdir()
    for page, origins in sets.items():
        cells = [{"cell_type": "markdown", "source": ["x"], "metadata": {"from": origin}} for origin in origins]
        (tmp_path / f"{page}.ipynb").write_text(json.dumps({"cells": cells}))
    monkeypatch.setattr(numbering, "ROOT", tmp_path)
    monkeypatch.setattr(numbering, "pages_of_the_book", lambda: ["book/index", *sets, "book/other"])
    monkeypatch.setattr(numbering, "chapters", numbering.chapters.__wrapped__)
    monkeypatch.setattr(numbering, "exercises", numbering.exercises.__wrapped__)


@pytest.mark.usefixtures("pages")
def test_chapters_and_exercises_are_counted_in_the_order_of_the_book():
    assert numbering.chapters() == {"notebooks/a": 1, "notebooks/b": 2, "notebooks/b-in-depth": 2, "notebooks/c": 3}
    assert numbering.exercises() == {"one": "1.1", "two": "1.2", "three": "2.1", "four": "2.2", "five": "3.1"}
    assert numbering.numbered("B", "notebooks/b") == "2. B"
    assert numbering.numbered("Other", "book/other") == "Other"


@pytest.mark.usefixtures("pages")
def test_title_and_statement_are_read_with_their_numbers():
    def cell(text, origin=""):
        return {"cell_type": "markdown", "source": [text], "metadata": {"from": origin}}

    cells = [
        cell("# B\n\n# no title"),
        cell("**Exercise: three** (5 minutes)\n\n**Exercise** x", "exercise/three/statement"),
        {"cell_type": "code", "source": ["# comment"], "metadata": {}},
    ]
    notebook_source.as_the_book_reads_it("notebooks/b", {"cells": cells})
    assert cells[0]["source"] == "# 2. B\n\n# no title"
    assert cells[1]["source"].startswith("(exercise-three)=\n**Exercise 2.1: three** (5 minutes)\n\n**Exercise** x")
    assert cells[2]["source"] == ["# comment"]
    with pytest.raises(ValueError, match="the statement of three should begin with"):
        notebook_source.as_the_book_reads_it(
            "notebooks/b", {"cells": [cell("An exercise", "exercise/three/statement")]}
        )


@pytest.mark.usefixtures("pages")
def test_a_bar_over_hidden_code_says_what_the_code_is_for():
    def code(source, *kinds, hidden=True):
        outputs = [{"output_type": "display_data", "data": dict.fromkeys(kind, "")} for kind in kinds]
        return {
            "cell_type": "code",
            "source": source,
            "outputs": outputs,
            "metadata": {"tags": ["hide-input"] * hidden, "mystnb": {"image": {"alt": "a"}}},
        }

    cells = [
        code("x\nimport math"),
        code("print(1)", ["text/plain"]),
        code("plot()", ["text/plain"], ["image/svg+xml"]),
        code("def f(): ..."),
        code("shown", hidden=False),
    ]
    notebook_source.as_the_book_reads_it("notebooks/b", {"cells": cells})
    bars = [cell["metadata"]["mystnb"].get("code_prompt_show") for cell in cells]
    what = ["the imports", "the code of this output", "the code of this figure", "this code"]
    assert bars == [*(f"Show {purpose}" for purpose in what), None]
    assert cells[2]["metadata"]["mystnb"]["code_prompt_hide"] == "Hide the code of this figure"
    assert cells[2]["metadata"]["mystnb"]["image"] == {"alt": "a"}


@chapters
def test_every_exercise_of_a_chapter_has_a_number(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    ids = numbering.set_by(map(numbering.origin, notebook["cells"]))
    page = f"notebooks/{path.stem}"
    notebook_source.as_the_book_reads_it(page, notebook)
    read = "\n\n".join(cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "markdown")
    for name in ids:
        number = re.escape(numbering.exercises()[name])
        assert re.search(rf"^\(exercise-{name}\)=\n\*\*(Exercise|Find the bug) {number}: ", read, re.MULTILINE), name
    assert re.search(rf"^# {numbering.chapters()[page]}\. ", read, re.MULTILINE)


def test_numbers_are_given_once():
    numbers = list(numbering.exercises().values())
    assert len(numbers) == len(set(numbers)) > 50


# ── search ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_word_leads_to_a_page_of_the_book():
    assert set(search_words.words()) <= set(apparatus.pages_of_the_book())
    for page, entries in search_words.words().items():
        headings = re.findall(r"^#+ (.+)$", "\n".join(markdown_of(page)), re.MULTILINE)
        anchors = {re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-") for heading in headings}
        assert {anchor for _, anchor in entries} - {""} <= anchors, f"search.yml names a section that {page} has not"
    every = {word.lower() for entries in search_words.words().values() for word, _ in entries}
    assert {"grpo", "kl", "kullback", "reward hacking", "ppo", "gae", "gspo", "dr. grpo"} <= every


def test_a_method_is_found_in_its_own_chapter():
    found = search_words.words()
    for page in numbering.chapters():
        name = page.partition("/")[2]
        if (ROOT / "tests" / "transcriptions" / f"{name.replace('-', '_')}.py").is_file():
            assert name in {word.lower().replace(". ", "-") for word, _ in found.get(page, [])}, page


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("book/index: [a]\nbook/nothing: [b]\n", "no page book/nothing"),
        ("book/index: [KL]\nbook/notation: [kl]\n", "'kl' stands at book/index and at book/notation"),
        ("book/index: KL\n", "book/index: expected a list of words"),
        ("book/index: [1]\n", "book/index: expected a list of words"),
    ],
)
def test_a_list_of_words_that_is_none_is_refused(tmp_path, text, said):
    (tmp_path / "search.yml").write_text(text)
    with pytest.raises(ValueError, match=said):
        search_words.words(tmp_path / "search.yml")


# ── make lab ─────────────────────────────────────────────────────────────────────────────────────────────────────


def lab_command():
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return shlex.split(re.search(r"^\t\$\(BIN\)/jupyter (lab .+)$", text, re.MULTILINE)[1])


def test_lab_opens_the_order_of_the_chapters_with_the_whole_repository_as_its_root():
    index = "notebooks/contents/chapters.ipynb"
    assert lab_command() == ["lab", "--notebook-dir=.", index]
    targets = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert f"`.venv/bin/jupyter {shlex.join(lab_command())}`" in targets
    listed = re.findall(r"\]\((.+\.ipynb)\)", (ROOT / "notebooks" / "README.md").read_text(encoding="utf-8"))
    assert [f"notebooks/{name.removesuffix('.ipynb')}" for name in listed] == list(numbering.chapters())
    notebook = nbformat.read(ROOT / index, as_version=4)
    assert {cell.cell_type for cell in notebook.cells} == {"markdown"}
    links = re.findall(r"\]\((.+\.ipynb)\)", "\n".join(cell.source for cell in notebook.cells))
    assert links == [f"../{name}" for name in listed]


@chapters
def test_every_link_of_a_chapter_is_served_by_lab(path):
    """A link leads to a file under the server's root, or it is an address."""
    for link in re.findall(r"\]\(([^)\s]+)\)", "\n".join(markdown(path))):
        target = link.partition("#")[0]
        if target and not re.match(r"[a-z]+:", target):
            file = (path.parent / target).resolve()
            assert file.is_file(), link
            assert file.is_relative_to(ROOT), link


def test_building_a_wheel_leaves_nothing_for_git():
    command = ["git", "check-ignore", "build/lib/rlhf_minimal/__init__.py", "rlhf_minimal.egg-info/PKG-INFO"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if result.returncode == 128:
        pytest.skip("this is no git repository")
    assert len(result.stdout.splitlines()) == 2
