"""Ideas, claims, questions and the cells that are rendered from a source: read, checked, and turned into text.

No Sphinx in here. The pages (`apparatus_pages.py`), the tool that fills notebooks (`book/_tools/fill_cells.py`) and the
tests all read the same functions. How to add something is told in book/data/README.md.
"""

import ast
import copy
import re
import textwrap
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
from data_files import read, using
from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "book" / "data"
SHOW = ("derive", "compute", "train", "cite", "discuss")
LEVELS = {1: "know it", 2: "explain it", 3: "defend it"}
SPOKEN = 90  # words in half a minute, unhurried


# ── ideas ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Concept:
    """One idea of the book."""

    id: str
    part: str
    show: str
    idea: str
    doubt: str = ""
    title: str = ""


@cache
def concepts(path: Path = DATA / "concepts.yml") -> dict[str, Concept]:
    """Every idea by id, in the order of the file.

    Raises:
        ValueError: an entry that is incomplete or stands twice, naming the file and the entry.
    """
    with using(path):
        return _concepts(read(path))


def _concepts(parts: dict[str, Any]) -> dict[str, Concept]:
    found: dict[str, Concept] = {}
    for part, entries in parts.items():
        for entry in _entries(entries, f"the part {part}"):
            _check_fields(entry, {"id", "show", "idea"}, {"doubt", "title"}, no_text=frozenset())
            concept = Concept(part=str(part), **entry)
            if concept.show not in SHOW:
                raise ValueError(f"{concept.id}: show is {concept.show!r}, expected one of {', '.join(SHOW)}")
            if concept.id in found:
                raise ValueError(f"{concept.id} stands twice")
            found[concept.id] = concept
    return found


def _entries(found: Any, what: str) -> list[dict[str, Any]]:
    """A list of objects, which is what ideas and questions are written as."""
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise ValueError(f"{what} should be a list of entries with names, and is {str(found)[:60]!r}")
    return found


def _check_fields(entry: dict[str, Any], needed: set[str], possible: set[str], no_text: frozenset[str]) -> None:
    """Refuses an entry that lacks a field, has one that means nothing, or has no text where text belongs."""
    name = entry.get("id", "an entry without an id")
    missing, extra = needed - entry.keys(), entry.keys() - needed - possible
    if missing or extra:
        raise ValueError(f"{name}: lacks {sorted(missing)}, has {sorted(map(str, extra))} that mean nothing")
    unfit = [key for key in entry.keys() - no_text if not isinstance(entry[key], str) or not entry[key].strip()]
    if unfit:
        raise ValueError(f"{name}: expected text under {', '.join(sorted(unfit))}")


# ── claims: which cell shows which idea ──────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Claim:
    """A cell (or a place in a Markdown page) that says: here this idea is shown."""

    name: str  # "concept-<id>" or "proof-<word>": the anchor on the page
    page: str  # notebooks/grpo
    cell: int  # number of the cell in the notebook, of the line in a Markdown page
    kind: str  # "code" or "markdown"
    heading: str  # of the section it stands in
    heading_number: int  # counted from 0 over the page
    source: str

    @property
    def concept(self) -> str | None:
        """The idea that is claimed; None for a cell that is only pointed at."""
        return self.name.removeprefix("concept-") if self.name.startswith("concept-") else None

    @property
    def asserts(self) -> bool:
        """Whether the cell would fail if the statement were false."""
        return self.kind == "code" and asserts_something(self.source)

    @property
    def cites(self) -> bool:
        """Whether the text names a source: an arXiv number, a link, or an entry of the bibliography."""
        named = re.search(r"\b\d{4}\.\d{4,5}\b|\{cite[a-z:]*\}`|\]\(https?://", self.source)
        return self.kind == "markdown" and bool(named)

    def problem(self, concept: Concept) -> str | None:
        """What is missing for this claim to count as evidence."""
        if self.asserts or (concept.show in ("cite", "discuss") and self.cites):
            return None
        where = f"{self.page}, cell {self.cell}, claims {concept.id!r} ({concept.show})"
        if concept.show in ("cite", "discuss"):
            return f"{where}: expected a Markdown cell that names its source, or a code cell that asserts"
        return f"{where}: expected a code cell with an assert or an assert_close that can fail"


def asserts_something(code: str) -> bool:
    """Whether a cell holds an assertion about something that it computes.

    Example:
        >>> asserts_something("assert x == 1"), asserts_something("assert True"), asserts_something("x == 1")
        (True, False, False)
    """
    lines = [line for line in code.splitlines() if not line.lstrip().startswith(("%", "!", "?"))]
    for node in ast.walk(ast.parse("\n".join(lines))):
        tested: ast.AST | None = None
        if isinstance(node, ast.Assert):
            tested = node.test
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            tested = node if name.startswith("assert") and node.args else None
            if tested is not None and not any(isinstance(x, ast.Name) for arg in node.args for x in ast.walk(arg)):
                tested = None
        if tested is not None and any(isinstance(leaf, ast.Name) for leaf in ast.walk(tested)):
            return True
    return False


def claims_of(page: str, notebook: nbformat.NotebookNode) -> list[Claim]:
    """What the cells of a notebook claim: metadata ``concepts``, and tags that begin with ``proof-``."""
    found: list[Claim] = []
    headings: list[str] = []
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            headings += headings_in(cell.source)
        names = [f"concept-{name}" for name in cell.metadata.get("concepts", ())]
        names += [tag for tag in cell.metadata.get("tags", ()) if tag.startswith("proof-")]
        heading = headings[-1] if headings else ""
        found += [
            Claim(name, page, number, cell.cell_type, heading, max(len(headings) - 1, 0), cell.source) for name in names
        ]
    return found


def claims_of_text(page: str, text: str) -> list[Claim]:
    """What a Markdown page claims: a comment line ``% concepts: id, id`` in the section that shows them."""
    lines, found = text.splitlines(), []
    for number, line in enumerate(lines):
        if match := re.match(r"%\s*concepts:\s*(.+)", line):
            headings = headings_in("\n".join(lines[:number]))
            rest = _until_heading(lines[number + 1 :])
            for name in re.split(r"[,\s]+", match[1].strip()):
                heading = headings[-1] if headings else ""
                found.append(
                    Claim(f"concept-{name}", page, number, "markdown", heading, max(len(headings) - 1, 0), rest)
                )
    return found


def headings_in(text: str) -> list[str]:
    """The headings of a Markdown text, without those in code."""
    tokens = MarkdownIt("commonmark").parse(text)
    return [tokens[i + 1].content for i, token in enumerate(tokens) if token.type == "heading_open"]


def _until_heading(lines: list[str]) -> str:
    """The lines up to the next heading, as one text."""
    end = next((i for i, line in enumerate(lines) if line.startswith("#")), len(lines))
    return "\n".join(lines[:end])


def pages_of_the_book() -> list[str]:
    """Every page that `_toc.yml` names, in the order of the book."""

    def walk(node: Any) -> list[str]:
        if isinstance(node, dict):
            return [
                page for key, value in node.items() for page in ([value] if key in ("file", "root") else walk(value))
            ]
        return [page for value in node for page in walk(value)] if isinstance(node, list) else []

    return walk(read(ROOT / "_toc.yml"))


def claims() -> list[Claim]:
    """Every claim of every page of the book, in the order of the book."""
    found: list[Claim] = []
    for page in pages_of_the_book():
        notebook, text = ROOT / f"{page}.ipynb", ROOT / f"{page}.md"
        if notebook.is_file():
            with using(notebook):
                found += claims_of(page, nbformat.read(notebook, as_version=4))
        elif text.is_file():
            found += claims_of_text(page, text.read_text(encoding="utf-8"))
    return found


def problems(found: list[Claim]) -> list[str]:
    """What is wrong with a list of claims: ideas that do not exist, evidence that is none, an anchor in two places."""
    texts: list[str | None] = []
    places: dict[tuple[str, str], int] = {}
    for claim in found:
        where = f"{claim.page}, cell {claim.cell}"
        if claim.concept is not None:
            concept = concepts().get(claim.concept)
            texts.append(claim.problem(concept) if concept else f"{where}: no idea has the id {claim.concept!r}")
        first = places.setdefault((claim.page, claim.name), claim.cell)
        if first != claim.cell:
            texts.append(f"{where} and cell {first} both have {claim.name!r}: an anchor can stand in one place only")
    return [text for text in texts if text]


# ── interview questions ──────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Proof:
    """Where an answer is shown to be true: a cell of a chapter, a section of a page, or a test."""

    page: str = ""
    cell: str = ""  # "group-size", an idea that the cell claims, or "proof-…", a tag
    test: str = ""  # tests/test_x.py::test_y

    @property
    def anchor(self) -> str:
        """The name of the cell's anchor on its page."""
        return self.cell if self.cell.startswith("proof-") else f"concept-{self.cell}"

    def problem(self, found: list[Claim]) -> str | None:
        """Why it leads nowhere, or None."""
        if self.test:
            return None if test_docstring(self.test) is not None else f"there is no test {self.test}"
        if self.page not in pages_of_the_book():
            return f"{self.page} is not a page of the book"
        claim = next((c for c in found if (c.page, c.name) == (self.page, self.anchor)), None)
        if claim is None:
            return f"no cell of {self.page} claims {self.cell!r}"
        return None if claim.asserts else f"the cell of {self.page} that claims {self.cell!r} asserts nothing"


@dataclass(frozen=True)
class Question:
    """One interview question with everything a reader should be able to say about it."""

    id: str
    level: int
    topics: tuple[str, ...]
    question: str
    answer: str
    wrong: str
    follow_ups: tuple[tuple[str, str], ...]
    proof: tuple[Proof, ...]
    concept: str = field(default="")


_LISTS = frozenset({"topics", "follow_ups", "proof"})
_FIELDS = {"id", "level", "topics", "question", "answer", "wrong", "follow_ups", "proof"}


@cache
def questions(path: Path = DATA / "questions.yml") -> dict[str, Question]:
    """Every question by id, in the order of the file.

    Raises:
        ValueError: an entry that is incomplete, naming it and what it lacks.
    """
    with using(path):
        return _questions(read(path, list))


def _questions(entries: list[Any]) -> dict[str, Question]:
    found: dict[str, Question] = {}
    for entry in _entries(entries, "the file"):
        name = entry.get("id")
        _check_fields(entry, _FIELDS, {"concept"}, no_text=_LISTS | {"level"})
        if unfit := [key for key in _LISTS if not isinstance(entry[key], list)]:
            raise ValueError(f"{name}: expected a list under {', '.join(sorted(unfit))}")
        if name in found:
            raise ValueError(f"{name} stands twice")
        idea = entry.get("concept", name)
        if idea not in concepts():
            raise ValueError(f"{name}: {idea!r} is no idea of concepts.yml; name one under `concept`")
        if entry["level"] not in LEVELS or not entry["topics"] or not entry["proof"] or not entry["follow_ups"]:
            raise ValueError(
                f"{name}: expected a level of {list(LEVELS)}, and a topic, a proof and a follow-up at least"
            )
        if len(entry["answer"].split()) > SPOKEN:
            raise ValueError(
                f"{name}: the answer has {len(entry['answer'].split())} words, half a minute holds {SPOKEN}"
            )
        found[name] = Question(
            name,
            entry["level"],
            tuple(entry["topics"]),
            _flat(entry["question"]),
            entry["answer"].strip(),
            entry["wrong"].strip(),
            tuple((_flat(follow["question"]), _flat(follow["answer"])) for follow in entry["follow_ups"]),
            tuple(Proof(**proof) for proof in entry["proof"]),
            idea,
        )
    return found


def _flat(text: str) -> str:
    return " ".join(text.split())


@cache
def test_docstring(test: str) -> str | None:
    """The first paragraph of a test's docstring ("" if it has none), or None if there is no such test."""
    file, _, name = test.partition("::")
    path = ROOT / file
    if not path.is_file() or not file.startswith("tests/"):
        return None
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return _flat((ast.get_docstring(node) or "").split("\n\n")[0])
    return None


def question_markdown(question: Question, page: str, found: list[Claim]) -> str:
    """The question as a chapter prints it: plain Markdown that Jupyter, Colab and the book all understand."""
    proofs = []
    for proof in question.proof:
        if proof.test:
            text = test_docstring(proof.test)
            proofs.append(f"- `{proof.test}`" + (f": {text}" if text else ""))
            continue
        claim = next((c for c in found if (c.page, c.name) == (proof.page, proof.anchor)), None)
        section = claim.heading if claim else "…"
        chapter = "this chapter" if proof.page == page else f"`{proof.page}.ipynb`"
        proofs.append(f"- the asserting cell of {chapter} under *{section}*")
    follow_ups = [f"- *{asked}* {answer}" for asked, answer in question.follow_ups]
    return "\n".join(
        [
            f"**{question.question}** (level {question.level}: {LEVELS[question.level]})",
            "",
            "<details>",
            "<summary>What to say in half a minute</summary>",
            "",
            question.answer,
            "",
            f"**Often said, and wrong.** {question.wrong}",
            "",
            "**They may ask next.**",
            "",
            *follow_ups,
            "",
            "**Where it is proved.**",
            "",
            *proofs,
            "",
            "</details>",
        ]
    )


# ── cells that are rendered from a source ────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Rendered:
    """What a cell with metadata ``from`` has to hold."""

    cell_type: str
    source: str
    tags: tuple[str, ...] = ()
    prompt: str = ""  # what the button says behind which it is hidden


def rendered(reference: str, page: str, found: list[Claim]) -> Rendered:
    """The text that belongs to a reference such as "exercise/grpo-advantage/stub".

    Raises:
        ValueError: a reference that leads nowhere.
    """
    from rlhf_book.exercises import BUGS, EXERCISES

    hidden = ("hide-cell", "nbval-check-output")
    match reference.split("/"):
        case ["exercise", name, part] if name in EXERCISES:
            exercise = EXERCISES[name]
            parts = {
                "statement": Rendered("markdown", exercise.markdown),
                "stub": Rendered("code", exercise.stub, ("nbval-check-output",)),
                "solution": Rendered("code", exercise.solution_cell, hidden, "Show a solution"),
            }
        case ["bug", name, part] if name in BUGS:
            bug = BUGS[name]
            parts = {
                "statement": Rendered("markdown", bug.markdown),
                "symptom": Rendered("code", bug.symptom_cell, ("nbval-check-output",)),
                "property": Rendered("code", bug.property_cell, hidden, "Show the property that reveals it"),
                "mended": Rendered("code", bug.mended_cell, hidden, "Show the mended code"),
                "moral": Rendered("markdown", bug.moral_markdown),
            }
        case ["question", name] if name in questions():
            part, parts = "", {"": Rendered("markdown", question_markdown(questions()[name], page, found))}
        case _:
            raise ValueError(f"{page}: no source has the name {reference!r}")
    if part not in parts:
        raise ValueError(f"{page}: {reference!r}: expected one of {', '.join(parts)}")
    return parts[part]


def page_of(path: Path) -> str:
    """The name of a notebook in `_toc.yml`."""
    return path.resolve().relative_to(ROOT).with_suffix("").as_posix()


def fill(page: str, notebook: nbformat.NotebookNode, found: list[Claim] | None = None) -> list[str]:
    """Bring every cell with metadata ``from`` up to its source, in place; say which cells had to change."""
    others = [claim for claim in (claims() if found is None else found) if claim.page != page]
    found = others + claims_of(page, notebook)
    changed = []
    for cell in notebook.cells:
        reference = cell.metadata.get("from")
        if reference is None:
            continue
        wanted = rendered(reference, page, found)
        if cell.cell_type != wanted.cell_type:
            raise ValueError(f"{page}: the cell for {reference!r} is {cell.cell_type}, expected {wanted.cell_type}")
        before = copy.deepcopy(cell)
        cell.source = wanted.source
        if missing := [tag for tag in wanted.tags if tag not in cell.metadata.get("tags", ())]:
            cell.metadata["tags"] = [*cell.metadata.get("tags", ()), *missing]
        if wanted.prompt:
            cell.metadata["mystnb"] = {**cell.metadata.get("mystnb", {}), "code_prompt_show": wanted.prompt}
        if cell != before:
            changed.append(reference)
    return changed


def summary() -> str:
    """How much of the list is shown, and what is missing, part by part."""
    shown = {claim.concept for claim in claims()}
    lines = []
    for part in dict.fromkeys(concept.part for concept in concepts().values()):
        ids = [concept.id for concept in concepts().values() if concept.part == part]
        missing = [name for name in ids if name not in shown]
        lines.append(f"{part}: {len(ids) - len(missing)} of {len(ids)} shown")
        if missing:
            lines += textwrap.wrap("missing: " + ", ".join(missing), 110, initial_indent="  ", subsequent_indent="  ")
    return "\n".join(lines)
