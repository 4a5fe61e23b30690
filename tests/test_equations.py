"""Every equation is executable, and every function of the objective has its equation. No orphans on either side.

The index is the one that the pages are made of (book/_pages/equation_index.py).
"""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

import api_pages
import equation_index as index

ROOT = Path(__file__).resolve().parents[1]

# Functions that compute no equation of their own, and why.
PLUMBING = {
    "functional.checks": "refuses bad input; computes nothing",
    "functional.masked": "sums and means over trained tokens: the sums inside every equation",
    "functional.logprobs.completion_logits": "the shift by one, an index and no equation",
    "functional.aggregation.Totals": "holds the denominators",
    "objective.KL": "a choice of estimator, place and level; its equations are those of functional.kl",
    "objective.Algorithm": "a row: it holds cells and computes nothing",
    "objective.NotFinite": "an error, by its name",
    "objective.Batch": "a container; its checks have tests of their own",
    "algorithms.get_algorithm": "finds a row by its name",
    "pairs.PairwiseAlgorithm": "a row: it holds cells and computes nothing",
    "pairs.Pairs": "a container; its checks have tests of their own",
    "pairs.pairwise_scores": "calls the row's score on either side of the pairs",
    "anatomy.table": "prints the rows",
    "anatomy.diff": "prints what two rows do not share",
}
# Modules whose every public function must have an equation or stand above.
EQUATIONAL = ("functional.", "contrib.", "objective.", "anatomy.", "algorithms.", "pairs.")


def short(function):
    return function.path.removeprefix("rlhf_minimal.")


def excused(function):
    return any(short(function) == name or short(function).startswith(f"{name}.") for name in PLUMBING)


LABELLED = [function for function in index.functions() if function.label]


def test_the_index_sees_the_library():
    assert {"functional.gates.clip", "objective.policy_loss"} <= {short(function) for function in LABELLED}
    assert index.chapter_page("no-such-chapter") is None
    assert len(index.tests()) > 50


def test_every_function_of_the_objective_has_an_equation():
    orphans = [
        short(function)
        for function in index.functions()
        if short(function).startswith(EQUATIONAL) and not function.label and not excused(function)
    ]
    assert orphans == [], "give each a label :eq:`eq-…` in its docstring and an entry in book/equations.md"


def test_no_excuse_outlives_its_reason():
    names = [short(function) for function in index.functions()]
    unknown = [name for name in PLUMBING if not any(n == name or n.startswith(f"{name}.") for n in names)]
    needless = [short(function) for function in LABELLED if excused(function)]
    assert (unknown, needless) == ([], [])


def test_every_label_is_printed_and_every_printed_equation_is_a_function():
    printed, computed = set(index.printed()), set(index.by_label())
    assert computed - printed == set(), "these labels of docstrings have no equation in book/equations.md"
    assert printed - computed == set(), "these equations of book/equations.md have no function"


def test_every_label_that_a_docstring_mentions_exists():
    mentioned = {label for function in index.functions() for label in index.LABEL.findall(function.doc)}
    assert mentioned - set(index.printed()) == set()


@pytest.mark.parametrize("function", [f for f in LABELLED if f.math], ids=short)
def test_page_and_docstring_print_the_same_equation(function):
    assert index.same(index.printed()[function.label]) == index.same(function.math)


@pytest.mark.parametrize("function", LABELLED, ids=short)
def test_every_function_is_held_by_a_test(function):
    rows = index.rows_with(function)
    assert index.tests_of(function) or rows, "no test names this function and no row has it as a cell"
    for row in rows:
        assert (ROOT / "tests" / "transcriptions" / f"{row}.py").exists()


# The book's table of contents, in its final form: a docstring may name a chapter that is still to be written.
PLANNED = set(
    (
        "agents agents-in-depth anatomy anatomy-in-depth choosing choosing-in-depth dapo dapo-in-depth deepseek-r1 "
        "deepseek-r1-in-depth diagnosis diagnosis-in-depth distillation distillation-in-depth dr-grpo "
        "dr-grpo-in-depth from-zero from-zero-in-depth gae gae-in-depth grpo grpo-in-depth gspo gspo-in-depth judges "
        "judges-in-depth kimi kimi-in-depth kl-divergence kl-divergence-in-depth language-models "
        "language-models-in-depth making-it-fast making-it-fast-in-depth mixture-of-experts "
        "mixture-of-experts-in-depth off-policy off-policy-in-depth policy-gradients policy-gradients-in-depth "
        "ppo-clip ppo-clip-in-depth ppo-rlhf ppo-rlhf-in-depth process-rewards process-rewards-in-depth real-model "
        "real-model-in-depth reward-models reward-models-in-depth rloo rloo-in-depth rlvr rlvr-in-depth scaling-up "
        "scaling-up-in-depth self-play self-play-in-depth soft-gates soft-gates-in-depth test-time-scaling "
        "test-time-scaling-in-depth trust-regions trust-regions-in-depth whiteboard"
    ).split()
)


@pytest.mark.parametrize("function", LABELLED, ids=short)
def test_every_function_names_its_chapter(function):
    assert function.chapters
    assert set(function.chapters) <= PLANNED


def test_every_written_chapter_was_planned():
    written = {page.removeprefix("notebooks/") for page in index.pages_of_the_book() if page.startswith("notebooks/")}
    assert written <= PLANNED, "add it to the list above, so that docstrings may name it"


def test_every_equation_has_its_links():
    text = index.EQUATIONS.read_text(encoding="utf-8")
    links = re.findall(r"```\{generated\} equations:links (\S+)\n```", text)
    assert links == list(index.printed())


def pages():
    for page in index.pages_of_the_book():
        for suffix in (".md", ".ipynb"):
            if (path := ROOT / f"{page}{suffix}").exists():
                yield page, path


def text_of(path):
    if path.suffix == ".md":
        return path.read_text(encoding="utf-8")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def chapter(page):
    """The name of a chapter, of which the depth is a part."""
    return page.removeprefix("notebooks/").removesuffix("-in-depth")


def test_an_equation_is_labelled_once_in_the_book():
    """The library's labels belong to the page of equations; a chapter's own begin with its name."""
    found = [(label, page) for page, path in pages() for label in index.labels_in(text_of(path))]
    twice = [label for label, count in Counter(label for label, _ in found).items() if count > 1]
    assert twice == []
    foreign = [
        (label, page)
        for label, page in found
        if page.startswith("notebooks/") and not label.startswith(f"eq-{chapter(page)}-")
    ]
    assert foreign == [], "in the chapter notebooks/x.ipynb a label is called eq-x-…; see the style guide"


def test_every_module_has_its_page_in_the_reference():
    listed = set()
    for path in (ROOT / "book" / "api").glob("*.md"):
        for name in re.findall(r"\{generated\} api_pages:sections ([\w.]+)", path.read_text(encoding="utf-8")):
            listed.update(api_pages.modules(name))
    folders = [ROOT / "rlhf_minimal", *(path.parent for path in (ROOT / "rlhf_minimal").glob("*/__init__.py"))]
    names = [".".join(folder.relative_to(ROOT).parts) for folder in folders]
    expected = {module for name in names for module in api_pages.modules(name)}
    assert expected - listed == set(), "list each on a page of book/api"
