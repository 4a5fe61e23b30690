"""The concept index held against the pages: what a page claims to show exists, and is shown by something that can fail.

What is still missing is printed and is no failure: run with `-s`, or read the last test's output.
"""

import copy
import re
from pathlib import Path

import nbformat
import pytest

import apparatus
from apparatus import Claim, asserts_something, claims, claims_of, claims_of_text, concepts, problems

ROOT = Path(__file__).resolve().parents[1]

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def test_every_claim_is_kept():
    assert problems(claims()) == []


def test_what_is_missing_is_said(capsys):
    text = apparatus.summary()
    with capsys.disabled():
        print("\n" + text)
    assert len(re.findall(r"\d+ of \d+ shown", text)) == len({idea.part for idea in concepts().values()})


def test_the_list_is_whole():
    ideas = concepts()
    text = (ROOT / "book" / "data" / "concepts.yml").read_text(encoding="utf-8")
    assert len(ideas) == len(re.findall(r"^ *- \{?id: ", text, re.MULTILINE)), "an entry is not read"
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) for name in ideas)
    assert all(idea.idea.strip() for idea in ideas.values())
    assert sum(bool(idea.doubt) for idea in ideas.values()) > 30
    for idea in ideas.values():  # an interview question is its own title
        assert bool(idea.title) == (idea.part != "interview")
        assert len(idea.title) <= 50


# ── the check bites ──────────────────────────────────────────────────────────────────────────────────────────────


def chapter():
    """A small chapter: an asserting cell, a citing one, and one that is only pointed at."""
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [
        nbformat.v4.new_markdown_cell("# A chapter\n\n```\n# no heading\n```"),
        nbformat.v4.new_markdown_cell("## The advantage"),
        nbformat.v4.new_code_cell("x = 1 + 1\nassert x == 2", metadata={"concepts": ["group-advantage"]}),
        nbformat.v4.new_markdown_cell(
            "## Settings\n\nG = 64 (arXiv 2402.03300).", metadata={"concepts": ["paper-settings"]}
        ),
        nbformat.v4.new_code_cell(
            "torch.testing.assert_close(mine, theirs)",
            metadata={"concepts": ["grpo-from-scratch"], "tags": ["proof-a"]},
        ),
    ]
    return notebook


def test_a_chapters_claims_are_read():
    found = claims_of("notebooks/x", chapter())
    assert [(c.name, c.cell, c.heading, c.heading_number) for c in found] == [
        ("concept-group-advantage", 2, "The advantage", 1),
        ("concept-paper-settings", 3, "Settings", 2),
        ("concept-grpo-from-scratch", 4, "Settings", 2),
        ("proof-a", 4, "Settings", 2),
    ]
    assert problems(found) == []


@pytest.mark.parametrize(
    ("cell", "source"),
    [
        (2, "x = 1 + 1"),
        (2, "x = 1 + 1\n# assert x == 2"),
        (2, "x = 1 + 1\nassert True"),
        (2, "x = 1 + 1\nprint('assert x == 2')"),
        (4, "torch.testing.assert_close(1, 1)"),
        (4, "close = mine - theirs"),
        (3, "## Settings\n\nG = 64, as the paper says."),
    ],
)
def test_a_cell_without_its_assert_is_found(cell, source):
    notebook = chapter()
    notebook.cells[cell].source = source
    assert len(problems(claims_of("notebooks/x", notebook))) == 1


def test_other_faults_are_found():
    notebook = chapter()
    notebook.cells[2].metadata["concepts"] = ["group-advantages"]
    assert "no idea has the id 'group-advantages'" in problems(claims_of("notebooks/x", notebook))[0]
    notebook = chapter()
    notebook.cells[4].metadata["concepts"] = ["group-advantage"]
    assert "both have 'concept-group-advantage'" in problems(claims_of("notebooks/x", notebook))[0]
    markdown_for_a_computation = Claim("concept-group-advantage", "x", 0, "markdown", "", 0, "arXiv 2402.03300")
    assert "expected a code cell with an assert" in problems([markdown_for_a_computation])[0]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_asserting_cell_of_a_chapter_is_needed(path):
    """In a copy in memory each claiming cell loses its asserts, one cell at a time: each loss is found."""
    notebook = nbformat.read(path, as_version=4)
    page = apparatus.page_of(path)
    claiming = [c for c in claims_of(page, notebook) if c.concept and c.asserts]
    for claim in claiming:
        mutant = copy.deepcopy(notebook)
        cell = mutant.cells[claim.cell]
        cell.source = re.sub(r"\bassert\b(?=[ (])|\b[\w.]*assert_\w+(?=\()", "print", cell.source)
        cell.source = re.sub(r"^(\s*)print (.*)$", r"\1pass", cell.source, flags=re.MULTILINE)
        if not parses(cell.source):
            cell.source = "pass"
        assert any(f"cell {claim.cell}," in text for text in problems(claims_of(page, mutant))), claim.name


def parses(code):
    try:
        compile("\n".join(line for line in code.splitlines() if not line.startswith(("%", "!"))), "cell", "exec")
    except SyntaxError:
        return False
    return True


def test_magics_do_not_hide_an_assert():
    assert asserts_something("%matplotlib inline\nassert y > 0")
    assert not asserts_something("%matplotlib inline\ny > 0")


def test_a_page_claims_by_a_comment():
    text = "# Page\n\n## One\n\n% concepts: dapo-no-kl, seatbelt\n\nSee arXiv 2503.14476.\n\n## Two\n\nNo source.\n"
    found = claims_of_text("book/x", text)
    assert [(c.concept, c.heading, c.heading_number) for c in found] == [
        ("dapo-no-kl", "One", 1),
        ("seatbelt", "One", 1),
    ]
    assert problems(found) == []
    assert problems(claims_of_text("book/x", text.replace("2503.14476", "the paper"))) != []


# ── cells that are rendered from a source ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_rendered_cells_are_what_their_source_says(path):
    notebook = nbformat.read(path, as_version=4)
    assert apparatus.fill(apparatus.page_of(path), notebook) == [], "run book/_tools/fill_cells.py on it"


def test_an_empty_cell_is_filled_and_then_left_alone():
    notebook = chapter()
    references = ["exercise/grpo-advantage/statement", "exercise/grpo-advantage/stub", "bug/padded-mean/symptom"]
    for reference in references:
        kind = nbformat.v4.new_markdown_cell if reference.endswith("statement") else nbformat.v4.new_code_cell
        notebook.cells.append(kind("", metadata={"from": reference}))
    assert apparatus.fill("notebooks/x", notebook, []) == references
    assert apparatus.fill("notebooks/x", notebook, []) == []
    assert "my_group_advantage" in notebook.cells[-2].source
    assert "tags" not in notebook.cells[-2].metadata
    assert notebook.cells[-1].metadata["tags"] == ["nbval-check-output"]
    notebook.cells[-1].source += "\n# edited by hand"
    assert apparatus.fill("notebooks/x", notebook, []) == ["bug/padded-mean/symptom"]


def test_a_cell_imports_what_no_cell_above_it_has():
    notebook = nbformat.v4.new_notebook()
    for reference in ("exercise/grpo-advantage/stub", "exercise/grpo-k3/stub", "bug/padded-mean/symptom"):
        notebook.cells.append(nbformat.v4.new_code_cell("", metadata={"from": reference}))
    apparatus.fill("notebooks/x", notebook, [])
    first, second, third = (cell.source for cell in notebook.cells)
    assert first.startswith(
        "import torch\nfrom torch import Tensor\n\nfrom rlhf_book.exercises import check, hint, solution"
    )
    assert second.startswith("def my_k3_penalty(")
    assert third.startswith("from collections.abc import Callable\n\n\ndef suspect_loss(")
    notebook.cells.insert(
        0, nbformat.v4.new_code_cell("import torch\nfrom rlhf_book.exercises import check, hint, solution")
    )
    apparatus.fill("notebooks/x", notebook, [])
    assert notebook.cells[1].source.startswith("from torch import Tensor\n\n\ndef my_group_advantage(")


def test_a_cell_made_of_a_solution_is_removed_and_a_stub_prints_nothing():
    notebook = chapter()
    cells = len(notebook.cells)
    references = ["exercise/grpo-advantage/solution", "bug/padded-mean/property", "bug/padded-mean/mended"]
    for reference in [*references, "exercise/grpo-advantage/stub"]:
        notebook.cells.append(
            nbformat.v4.new_code_cell("1", metadata={"from": reference, "tags": ["nbval-check-output"]})
        )
    notebook.cells[-1].outputs = [nbformat.v4.new_output("stream", text="Not yet")]
    assert apparatus.fill("notebooks/x", notebook, []) == [*references, "exercise/grpo-advantage/stub"]
    assert len(notebook.cells) == cells + 1
    assert notebook.cells[-1].outputs == []
    assert "tags" not in notebook.cells[-1].metadata


@pytest.mark.parametrize("reference", ["exercise/nothing/stub", "exercise/grpo-advantage/answer", "question/x", "bug"])
def test_a_reference_that_leads_nowhere_is_an_error(reference):
    with pytest.raises(ValueError):
        apparatus.rendered(reference, "notebooks/x", [])


def test_a_rendered_cell_of_the_wrong_type_is_an_error():
    notebook = chapter()
    notebook.cells.append(nbformat.v4.new_code_cell("", metadata={"from": "exercise/grpo-advantage/statement"}))
    with pytest.raises(ValueError, match="expected markdown"):
        apparatus.fill("notebooks/x", notebook, [])
