"""The library in the order in which the book builds it: where each function of the core has its home, and what it adds.

A function's home is the chapter that its docstring names first ("Chapter: grpo."); book/data/homes.yml has the others,
by file or one by one. From these follow the page "The library, in the order in which it is built" and the last line of
a chapter, how much of the core a reader has seen by then. The core is what `tests/lines.py` counts as such.

A home has to be true: the chapter's code uses the function, directly or through other functions of the core that it
calls, or its text shows the name. tests/book/test_built.py asks for it.
"""

import ast
import sys
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path

import apparatus
import numbering
from data_files import ROOT, cells_of, parsed, read, title_of, using
from equation_index import Definition, Function, defined, functions, mentioned, module_of, names_in
from printing import table

sys.path.append(str(ROOT))

from tests.lines import CORE, code_lines  # noqa: E402

PACKAGE = ROOT / "rlhf_minimal"
HOMES = ROOT / "book" / "data" / "homes.yml"
COMMANDS = "command-line"  # the page on which command line, config and run folder are at home
START = "from-zero"  # is written without the library


@dataclass
class Piece:
    """A statement at the top of a file of the core: a function, a class, or what stands around them."""

    file: str  # functional/gates.py
    module: str  # rlhf_minimal.functional.gates
    name: str  # clip; "" for imports, constants and the file's docstring
    node: ast.stmt
    lines: int  # of code
    uses: set[str] = field(default_factory=set)  # full names of what it mentions
    home: str = ""

    @property
    def path(self) -> str:
        """The name by which Python finds it."""
        return f"{self.module}.{self.name}"

    @property
    def public(self) -> bool:
        """Whether it is a function or a class that others may call."""
        return isinstance(self.node, Definition) and not self.name.startswith("_")


def core_files() -> list[Path]:
    """The files of the core."""
    return [file for room in CORE for file in sorted((PACKAGE / room).glob("*.py"))]


@cache
def pieces() -> tuple[Piece, ...]:
    """All of the core, cut at the top of its files; their lines add up to the core's."""
    found = []
    for file in core_files():
        source, module = file.read_text(encoding="utf-8"), module_of(file)
        tree, code = ast.parse(source), code_lines(source)
        package = module if file.stem == "__init__" else module.rpartition(".")[0]
        names = names_in(tree, module, package)
        for node in tree.body:
            lines = len(code & set(lines_of(node)))
            name = node.name if isinstance(node, Definition) else ", ".join(defined(node))
            where = file.relative_to(PACKAGE).as_posix()
            found.append(Piece(where, module, name, node, lines, mentioned(node, names)))
    for piece in found:
        piece.uses = {resolved(name) for name in piece.uses}
    _settle(found)
    return tuple(found)


def lines_of(node: ast.stmt) -> range:
    """The numbers of its lines, decorators and all."""
    first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])
    return range(first, (node.end_lineno or first) + 1)


def _settle(found: list[Piece]) -> None:
    """Gives each piece its home: its own, that of the first that uses it, or the first of its file."""
    for piece in found:
        if piece.public:
            piece.home = own_home(piece)
    place = {name: number for number, name in enumerate(order())}
    for file in dict.fromkeys(piece.file for piece in found):
        here = [piece for piece in found if piece.file == file]
        settled = [piece for piece in here if piece.home]
        default = min((piece.home for piece in settled), key=lambda home: place.get(home, 0), default=COMMANDS)
        for piece in here:
            if piece.home or not isinstance(piece.node, Definition):
                continue
            users = [one.home for one in settled if piece.path in reached(one.uses, here)]
            piece.home = min(users, key=lambda home: place.get(home, 0), default=default)
        for piece in here:
            piece.home = piece.home or default


def reached(start: set[str], among: list[Piece] | tuple[Piece, ...]) -> set[str]:
    """All that is mentioned, by these names or by a piece that they lead to."""
    by_name = {f"{piece.module}.{name}": piece for piece in among for name in piece.name.split(", ")}
    found, left = set(start), list(start)
    while left:
        name = left.pop()
        piece = by_name.get(name) or by_name.get(name.rpartition(".")[0])  # a method, by its class
        new = (piece.uses | {piece.path} if piece else set()) - found
        found |= new
        left += new
    return found


# ---- homes ------------------------------------------------------------------------------------------------


@cache
def documented() -> dict[str, Function]:
    """The library's functions, by their full names."""
    return {function.path: function for function in functions()}


@cache
def told() -> dict[str, str]:
    """The homes of book/data/homes.yml, by file or by file and name.

    Raises:
        ValueError: A home that is no chapter; a file or a function that is not in the core.
    """
    with using(HOMES):
        found = {}
        for home, places in read(HOMES).items():
            if home not in order():
                raise ValueError(f"{home} is no chapter of the book")
            for place in places:
                if place in found:
                    raise ValueError(f"{place} has two homes, {found[place]} and {home}")
                found[place] = home
        return found


def own_home(piece: Piece) -> str:
    """The home of a public function: what its docstring says, or the file of homes; "" if neither does."""
    one = told().get(f"{piece.file}:{piece.name}")
    function = documented().get(piece.path)
    chapters = function.chapters if function else []
    return one or (chapters[0] if chapters else told().get(piece.file, ""))


@cache
def order() -> tuple[str, ...]:
    """The chapters that can be a home, in the order of the book; the page of the commands is the last."""
    names = [Path(page).name for page in apparatus.pages_of_the_book() if page in numbering.chapters()]
    return (*names, COMMANDS)


@cache
def named_in(chapter: str) -> frozenset[str]:
    """What a chapter's code mentions, by full names."""
    cells = cells_of(ROOT / "notebooks" / f"{chapter}.ipynb")
    tree = parsed("\n".join(cell["source"] for cell in cells if cell["cell_type"] == "code"))
    return frozenset(resolved(name) for name in mentioned(tree, names_in(tree)))


@cache
def _faces() -> dict[str, str]:
    """What a package's own file hands on: `rlhf_minimal.policy_loss` is `rlhf_minimal.objective.policy_loss`."""
    found: dict[str, str] = {}
    for file in PACKAGE.rglob("__init__.py"):
        module = module_of(file)
        tree = ast.parse(file.read_text(encoding="utf-8"))
        found |= {f"{module}.{name}": full for name, full in names_in(tree, module, module).items()}
    return found


def resolved(name: str) -> str:
    """Where a name is defined that a package's own file hands on."""
    faces, head, rest = _faces(), name, ""
    while head:
        if head in faces and faces[head] != head:
            return resolved(faces[head] + rest)
        head, dot, last = head.rpartition(".")
        rest = dot + last + rest
    return name


# ---- what is printed --------------------------------------------------------------------------------------


def added(home: str) -> int:
    """Lines of code of the core that a chapter adds."""
    return sum(piece.lines for piece in pieces() if piece.home == home)


def yours(home: str) -> int:
    """Lines of code of the core that a reader has seen built at the end of a chapter."""
    return sum(added(name) for name in order()[: order().index(home) + 1])


def total() -> int:
    """Lines of code of the core."""
    return sum(piece.lines for piece in pieces())


def line(chapter: str) -> str:
    """The last line of a chapter: what it has added to the library, and how much of it is the reader's.

    Lines are counted in tens and hundreds: a comma more in the core is no reason to write twenty chapters again.
    """
    added_here = [piece for piece in pieces() if piece.home == chapter and piece.public]
    if not added_here:
        raise ValueError(f"{chapter} is nobody's home: it adds nothing to the core")
    added_here.sort(key=lambda piece: piece.path not in named_in(chapter))  # first what its code calls by name
    names = [f"`{piece.name}`" for piece in added_here]
    shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    lines = max(round(added(chapter), -1), 10)
    return (
        f"**Of the library, this chapter has built or first called** {shown} (about {lines:,} lines). "
        f"**About {round(yours(chapter), -2):,} of {round(total(), -2):,} lines are yours**; "
        "[the library, in the order in which it is built](../book/library.md)."
    )


# The sections of from-zero that write the loop, and the sections of rlhf_minimal/train.py that do the same.
WRITTEN_FIRST = {
    "3. Sampling a group": ("sample and score",),
    "4. The log-probability of what was sampled": ("log-probs and values",),
    "5. From rewards to a loss": ("what the algorithm needs, and advantages", "loss and step"),
    "6. The loop": ("one step, and all of them",),
}


def loop_sections() -> str:
    """The table of the page: where the sections of from-zero stand in the library's loop."""
    rows = [(name, ", then ".join(f"*{one}*" for one in found)) for name, found in WRITTEN_FIRST.items()]
    return table(("from zero", "`rlhf_minimal/train.py`"), rows)


def sections() -> str:
    """The page: the core's source, chapter by chapter."""
    return "\n\n".join(section for home in order() if (section := _section(home)))


def _section(home: str) -> str:
    found = [piece for piece in pieces() if piece.home == home and piece.lines]
    if not found:
        return ""
    if home == COMMANDS:
        head = "## [The command line](api/command-line.md)"
    else:
        head = f"## [{title_of(f'notebooks/{home}')}](../notebooks/{home}.ipynb)"
    text = [head, f"{added(home):,} lines; {yours(home):,} of {total():,} are yours after it."]
    for file in dict.fromkeys(piece.file for piece in found):
        text.append(f"`rlhf_minimal/{file}`\n\n```python\n{_joined([p for p in found if p.file == file])}\n```")
    return "\n\n".join(text)


def _joined(found: list[Piece]) -> str:
    """The source of some pieces: functions and classes apart, other statements line by line."""
    text = shortened(found[0])
    for before, piece in pairwise(found):
        apart = isinstance(before.node, Definition) or isinstance(piece.node, Definition)
        text += ("\n\n\n" if apart else "\n") + shortened(piece)
    return text


def shortened(piece: Piece) -> str:
    """The source of a piece, with the first paragraph of its docstrings."""
    lines = (PACKAGE / piece.file).read_text(encoding="utf-8").splitlines()
    gone: set[int] = set()
    for node in ast.walk(piece.node):
        if isinstance(node, Definition) and (text := ast.get_docstring(node)) and "\n\n" in text:
            rest = lines_of(node.body[0])
            blank = next(n for n in rest if not lines[n - 1].strip())
            lines[blank - 2] += '"""'
            gone |= set(range(blank, rest[-1] + 1))
    return "\n".join(lines[n - 1] for n in lines_of(piece.node) if n not in gone)
