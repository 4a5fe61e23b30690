"""Ideas, claims, questions and the cells that are rendered from a source: read, checked, and turned into text.

No Sphinx in here. The pages (`apparatus_pages.py`), the tool that fills notebooks (`book/_tools/fill_cells.py`) and the
tests all read the same functions. How to add something is told in book/data/README.md.
"""

import ast
import copy
import re
import textwrap
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
from markdown_it import MarkdownIt

import numbering
from data_files import ROOT, made, pages_of_the_book, parsed, read, title_of, using
from printing import flat, folded

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
        for entry in entries:
            concept = made(Concept, entry, part=str(part))
            if concept.show not in SHOW:
                raise ValueError(f"{concept.id}: show is {concept.show!r}, expected one of {', '.join(SHOW)}")
            if concept.id in found:
                raise ValueError(f"{concept.id} stands twice")
            found[concept.id] = concept
    return found


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
    def target(self) -> str:
        """The label of the cell or, for Markdown, of its section: see book/_ext/anchors.py."""
        return f"{self.page}#{self.name if self.kind == 'code' else f'section-{self.heading_number}'}"

    @property
    def link(self) -> str:
        """A link to it, by the section's heading."""
        return f"[{self.heading}](<#{self.target}>)"

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
    for node in ast.walk(parsed(code)):
        tested: list[ast.expr] = []
        if isinstance(node, ast.Assert):
            tested = [node.test]
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            tested = node.args if name.startswith("assert") else []
        if any(isinstance(leaf, ast.Name) for part in tested for leaf in ast.walk(part)):
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


@cache
def headings_in(text: str) -> tuple[str, ...]:
    """The headings of a Markdown text, without those in code."""
    tokens = MarkdownIt("commonmark").parse(text)
    return tuple(tokens[i + 1].content for i, token in enumerate(tokens) if token.type == "heading_open")


def _until_heading(lines: list[str]) -> str:
    """The lines up to the next heading, as one text."""
    end = next((i for i, line in enumerate(lines) if line.startswith("#")), len(lines))
    return "\n".join(lines[:end])


def claims() -> list[Claim]:
    """Every claim of every page of the book, in the order of the book."""
    found: list[Claim] = []
    for page in pages_of_the_book():
        notebook, text = ROOT / f"{page}.ipynb", ROOT / f"{page}.md"
        if notebook.is_file():
            with using(notebook):
                found += _claims_in(page, notebook.read_text(encoding="utf-8"))
        elif text.is_file():
            found += claims_of_text(page, text.read_text(encoding="utf-8"))
    return found


@cache  # every page of the book asks for the claims of all
def _claims_in(page: str, notebook: str) -> tuple[Claim, ...]:
    return tuple(claims_of(page, nbformat.reads(notebook, as_version=4)))


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

    def claim(self, found: list[Claim]) -> Claim | None:
        """The claim of that cell."""
        return next((claim for claim in found if (claim.page, claim.name) == (self.page, self.anchor)), None)

    def problem(self, found: list[Claim]) -> str | None:
        """Why it leads nowhere, or None."""
        if self.test:
            return None if test_docstring(self.test) is not None else f"there is no test {self.test}"
        if self.page not in pages_of_the_book():
            return f"{self.page} is not a page of the book"
        claim = self.claim(found)
        if claim is None:
            return f"no cell of {self.page} claims {self.cell!r}"
        return None if claim.asserts else f"the cell of {self.page} that claims {self.cell!r} asserts nothing"


@dataclass(frozen=True)
class FollowUp:
    """What may be asked next."""

    question: str
    answer: str


@dataclass(frozen=True)
class Question:
    """One interview question with everything a reader should be able to say about it."""

    id: str
    level: int
    topics: tuple[str, ...]
    question: str
    answer: str
    wrong: str
    follow_ups: tuple[FollowUp, ...]
    proof: tuple[Proof, ...]
    concept: str = ""


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
    for entry in entries:
        asked = made(Question, entry)
        idea, words = asked.concept or asked.id, len(asked.answer.split())
        if asked.id in found:
            raise ValueError(f"{asked.id} stands twice")
        if idea not in concepts():
            raise ValueError(f"{asked.id}: {idea!r} is no idea of concepts.yml; name one under `concept`")
        if asked.level not in LEVELS:
            raise ValueError(f"{asked.id}: expected a level of {list(LEVELS)}, got {asked.level!r}")
        if words > SPOKEN:
            raise ValueError(f"{asked.id}: the answer has {words} words, half a minute holds {SPOKEN}")
        found[asked.id] = replace(asked, question=flat(asked.question), concept=idea)
    return found


ALOUD = 50  # words of an answer for two hours: some twenty seconds


@cache
def spoken(path: Path = DATA / "spoken.yml") -> dict[str, str]:
    """The questions for two hours, in their order: id -> what to say aloud.

    Raises:
        ValueError: an answer to no question, one that is too long to be said, or one that needs paper.
    """
    with using(path):
        found = {name: flat(text) for name, text in read(path).items()}
        for name, text in found.items():
            if name not in questions():
                raise ValueError(f"{name}: there is no such question in questions.yml")
            if (words := len(text.split())) > ALOUD:
                raise ValueError(f"{name}: {words} words, {ALOUD} can be said in one go")
            if "$" in text or "`" in text:
                raise ValueError(f"{name}: an answer that is spoken has no formula and no code")
    return found


def other_names() -> dict[str, str]:
    """Ids of ideas that are questions, and that a question with an id of its own asks: the idea's id, the question's.

    Raises:
        ValueError: such an idea that no question asks.
    """
    asked = {question.concept: question.id for question in reversed(questions().values())}
    ideas = [idea.id for idea in concepts().values() if idea.part == "interview"]
    if missing := [name for name in ideas if name not in asked and name not in questions()]:
        raise ValueError(f"no question asks {', '.join(missing)}")
    return {name: asked[name] for name in ideas if name not in questions()}


@cache
def test_docstring(test: str) -> str | None:
    """The first paragraph of a test's docstring ("" if it has none), or None if there is no such test."""
    file, _, name = test.partition("::")
    path = ROOT / file
    if not path.is_file() or not file.startswith("tests/"):
        return None
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return flat((ast.get_docstring(node) or "").split("\n\n")[0])
    return None


def answer_markdown(question: Question, proofs: str) -> str:
    """All that is said once a question is opened: the answer, the wrong one, what may follow, and the proofs."""
    parts = (
        question.answer,
        f"**Often said, and wrong.** {question.wrong}",
        "**They may ask next.**",
        "\n".join(f"- *{flat(one.question)}* {flat(one.answer)}" for one in question.follow_ups),
        f"**Where it is proved.**{proofs}",
    )
    return "\n\n".join(parts)


def question_markdown(question: Question, page: str, found: list[Claim]) -> str:
    """The question as a chapter prints it: plain Markdown that Jupyter, Colab and the book all understand.

    The proofs are named in words. Paths of tests and links to each proof stand on the page of all questions.
    """
    asked = f"**{question.question}** (level {question.level}: {LEVELS[question.level]})"
    answer = answer_markdown(question, f" {_proofs_in_words(question, page, found)}")
    return f"{asked}\n\n" + folded("What to say in half a minute", answer)


def _proofs_in_words(question: Question, page: str, found: list[Claim]) -> str:
    """Where the proofs are, in a sentence or two with one link."""
    here, elsewhere = [], []
    for proof in (proof for proof in question.proof if not proof.test):
        claim = proof.claim(found)
        section = claim.heading if claim else "…"
        (here if proof.page == page else elsewhere).append(f"*{section}*")
    tests = sum(bool(proof.test) for proof in question.proof)
    parts = []
    if here:
        parts.append(f"in this chapter under {_listed(here)}")
    if elsewhere:
        parts.append(f"in other chapters under {_listed(elsewhere)}")
    if tests:
        parts.append(f"by {'a test' if tests == 1 else f'{tests} tests'} of the library")
    words = _listed(parts)
    return f"{words[:1].upper()}{words[1:]}; [all proofs of all questions](../book/interview.md)."


def _listed(parts: Collection[str]) -> str:
    """ "a", "a and b", "a, b and c"; each part once."""
    *head, last = dict.fromkeys(parts)
    return f"{', '.join(head)} and {last}" if head else last


# ── cells that are rendered from a source ────────────────────────────────────────────────────────────────────────


# Tags that a rendered cell has exactly if its source says so.
_TAGS = ("hide-cell", "nbval-check-output")
# What belongs to a solution is no part of a page: a cell for it is removed.
_OFF_THE_PAGE = {"exercise": ("solution",), "bug": ("property", "mended", "moral")}


@dataclass(frozen=True)
class Rendered:
    """What a cell with metadata ``from`` has to hold."""

    cell_type: str
    source: str
    tags: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()  # names to be imported in the cell unless a cell above has done so
    silent: bool = False  # it prints nothing until the reader has changed it


def rendered(reference: str, page: str, found: list[Claim]) -> Rendered:
    """The text that belongs to a reference such as "exercise/grpo-advantage/stub".

    Raises:
        ValueError: a reference that leads nowhere.
    """
    from rlhf_book.exercises import BUGS, EXERCISES
    from rlhf_book.whiteboard import TASKS

    tasks = {task.id: task for task in TASKS}
    match reference.split("/"):
        case ["exercise", name, part] if name in EXERCISES:
            exercise = EXERCISES[name]
            parts = {
                "statement": Rendered("markdown", f"{exercise.markdown}\n\n{_ways_out(name)}"),
                "stub": Rendered("code", exercise.stub, needs=exercise.needs, silent=True),
            }
        case ["bug", name, part] if name in BUGS:
            bug = BUGS[name]
            parts = {
                "statement": Rendered("markdown", f"{bug.markdown}\n\n{_ways_out(name, bug=True)}"),
                "symptom": Rendered("code", bug.symptom_cell, ("nbval-check-output",), bug.needs),
            }
        case ["whiteboard", name, part] if name in tasks:
            task = tasks[name]
            parts = {
                "heading": Rendered("markdown", _task_heading(list(tasks).index(name) + 1, task)),
                "statement": Rendered("markdown", f"{task.markdown}\n\n{_ways_out(name)}"),
                "clock": Rendered("code", f'board.start("{name}")'),
                "stub": Rendered("code", task.stub, needs=task.needs, silent=True),
            }
        case ["question", name] if name in questions():
            part, parts = "", {"": Rendered("markdown", question_markdown(questions()[name], page, found))}
        case ["built"]:
            from built import line

            part, parts = "", {"": Rendered("markdown", line(Path(page).name))}
        case _:
            raise ValueError(f"{page}: no source has the name {reference!r}")
    if part not in parts:
        raise ValueError(f"{page}: {reference!r}: expected one of {', '.join(parts)}")
    return parts[part]


def _ways_out(name: str, bug: bool = False) -> str:
    """The last line of a statement: what to call when one is stuck, and where the solution stands."""
    page = f"[page of solutions](../{solutions_page(name)}.md#{name})"
    check = f'`check("{name}", mended)` tries your mended version. ' if bug else ""
    return f'{check}Stuck? `hint("{name}")`, then `solution("{name}")`, which is also on the {page}.'


def _task_heading(number: int, task: Any) -> str:
    """The heading of a task of the whiteboard: its minutes, and the section to read again."""
    anchor = re.sub(r"[^a-z0-9]+", "-", task.section.lower()).strip("-")
    link = f"[*{task.section}*]({task.page}.ipynb#{anchor})"
    chapter = title_of(f"notebooks/{task.page}").partition(":")[0]
    return f"## {number}. {task.name}\n\n{task.exercise.minutes} minutes suggested. To read again: {chapter}, {link}."


def solutions_page(name: str) -> str:
    """The page of the book that has the solution of an exercise or a bug."""
    from rlhf_book.exercises import CHAPTERS

    (chapter,) = (c for c in CHAPTERS if name in [item.id for item in (*c.EXERCISES, *c.BUGS)])
    return f"book/solutions/{chapter.__name__.rpartition('.')[2].replace('_', '-')}"


def pages_of_exercises() -> dict[str, str]:
    """The page that sets each exercise and each bug, in the order of the book.

    Raises:
        ValueError: an exercise that two pages set.
    """
    found: dict[str, str] = {}
    for page in numbering.chapters():
        for name in numbering.set_by(numbering.origins(page)):
            if name in found:
                raise ValueError(f"{page} sets the exercise {name}, and so does {found[name]}")
            found[name] = page
    return found


def page_of(path: Path) -> str:
    """The name of a notebook in `_toc.yml`."""
    return path.resolve().relative_to(ROOT).with_suffix("").as_posix()


def fill(page: str, notebook: nbformat.NotebookNode, found: list[Claim] | None = None) -> list[str]:
    """Bring every cell with metadata ``from`` up to its source, in place; say which cells had to change."""
    others = [claim for claim in (claims() if found is None else found) if claim.page != page]
    found = others + claims_of(page, notebook)
    changed = [cell.metadata["from"] for cell in notebook.cells if _off_the_page(cell)]
    notebook.cells = [cell for cell in notebook.cells if not _off_the_page(cell)]
    known: set[str] = set()
    for cell in notebook.cells:
        if (reference := cell.metadata.get("from")) is not None:
            wanted = rendered(reference, page, found)
            if cell.cell_type != wanted.cell_type:
                raise ValueError(f"{page}: the cell for {reference!r} is {cell.cell_type}, expected {wanted.cell_type}")
            before = copy.deepcopy(cell)
            _bring_up(cell, wanted, known)
            if cell != before:
                changed.append(reference)
        if cell.cell_type == "code":
            known |= _imported(cell.source)
    return changed


def _off_the_page(cell: nbformat.NotebookNode) -> bool:
    kind, _, rest = str(cell.metadata.get("from", "")).partition("/")
    return rest.rpartition("/")[2] in _OFF_THE_PAGE.get(kind, ())


def _bring_up(cell: nbformat.NotebookNode, wanted: Rendered, known: set[str]) -> None:
    """One cell: its text, its tags, and no output of a stub."""
    from rlhf_book.exercises.cells import imports

    cell.source = imports(wanted.needs, known) + wanted.source
    tags = [tag for tag in cell.metadata.get("tags", ()) if tag not in _TAGS or tag in wanted.tags]
    tags += [tag for tag in wanted.tags if tag not in tags]
    cell.metadata.pop("tags", None)
    if tags:
        cell.metadata["tags"] = tags
    if wanted.silent:
        cell.outputs = []


def _imported(code: str) -> set[str]:
    """The names that the imports of a cell bind."""
    return {
        (alias.asname or alias.name).partition(".")[0]
        for node in parsed(code).body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }


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
