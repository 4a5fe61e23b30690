"""What belongs to each equation: the function that computes it, the chapter that derives it, the rows and the tests.

Nothing here is typed in by hand. Functions and labels come from the library's docstrings, equations from the page that
prints them, chapters from `_toc.yml`, tests from the syntax trees of the test files. The pages and the test for orphans
read the same index.
"""

import ast
import re
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

from data_files import ROOT, pages_of_the_book

LIBRARY = ROOT / "rlhf_minimal"
TESTS = ROOT / "tests"
EQUATIONS = ROOT / "book" / "equations.md"

LABEL = re.compile(r":eq:`([^`]+)`")
DOCSTRING_MATH = re.compile(r"^\.\. math::[ ]*(.*(?:\n(?:[ ]+.*|(?=\n)))*)", re.MULTILINE)
PRINTED = re.compile(r"^\$\$\s*\n(.*?)\n\$\$ \(([^)]+)\)\s*$", re.MULTILINE | re.DOTALL)
# In a chapter the label is a comment, which Jupyter does not show: see notebook_source.py.
ANY_LABEL = re.compile(r"\$\$\s*(?:\(([^)]+)\)|<!-- (eq-\S+) -->)|^:label:\s*(\S+)|\\label\{([^}]+)\}", re.MULTILINE)

Definition = ast.FunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Function:
    """One public function or class of the library, as its docstring describes it."""

    module: str  # rlhf_minimal.functional.gates
    name: str  # clip
    doc: str

    @property
    def path(self) -> str:
        """The name by which Python finds it."""
        return f"{self.module}.{self.name}"

    @property
    def short(self) -> str:
        """The name that readers of the book know: gates.clip, policy_loss."""
        leaf = self.module.rsplit(".", 1)[1]
        return f"{leaf}.{self.name}" if ".functional." in self.module or ".contrib." in self.module else self.name

    @property
    def label(self) -> str | None:
        """The equation that this function computes; further labels in a docstring are only mentioned there."""
        found = LABEL.search(self.doc)
        return found[1] if found else None

    @property
    def math(self) -> str | None:
        """The equation as the docstring prints it."""
        found = DOCSTRING_MATH.search(self.doc)
        return found[1] if found else None

    @property
    def chapters(self) -> list[str]:
        """The chapters that its docstring names: "Chapter: ppo-clip (one bound), dapo (two)."."""
        found = re.search(r"Chapter: (.*?)\.(?:\s|$)", self.doc, re.DOTALL)
        if not found:
            return []
        parts = re.split(r"[,;]", re.sub(r"\([^)]*\)", "", found[1]))
        return [part.split()[0] for part in parts]


def module_of(file: Path) -> str:
    """The module that a file of the repository is."""
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def same(tex: str) -> str:
    """TeX without the white space that does not matter."""
    return re.sub(r"\s+", "", tex)


@cache
def functions() -> tuple[Function, ...]:
    """Every public function and class of the library, in the order of the source."""
    found = []
    for path in sorted(LIBRARY.rglob("*.py")):
        module = module_of(path)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, Definition) and not node.name.startswith("_"):
                found.append(Function(module, node.name, ast.get_docstring(node) or ""))
    return tuple(found)


@cache
def by_label() -> dict[str, list[Function]]:
    """Label -> the functions that compute it."""
    found: dict[str, list[Function]] = {}
    for function in functions():
        if function.label:
            found.setdefault(function.label, []).append(function)
    return found


@cache
def printed() -> dict[str, str]:
    """Label -> TeX of the page of equations, in the order of the page."""
    return {label: tex for tex, label in PRINTED.findall(EQUATIONS.read_text(encoding="utf-8"))}


@cache
def titles() -> dict[str, str]:
    """Label -> the heading under which its equation is printed."""
    found, title = {}, ""
    for line in EQUATIONS.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            title = line.lstrip("# ")
        elif match := re.match(r"\$\$ \(([^)]+)\)$", line):
            found[match[1]] = title
    return found


def chapter_page(name: str) -> str | None:
    """The page of a chapter, once it is part of the book."""
    page = f"notebooks/{name}"
    return page if page in pages_of_the_book() else None


@dataclass(frozen=True)
class Test:
    """One test function and the names of the library that it, or a helper it calls, refers to."""

    file: str
    name: str
    uses: frozenset[str]


@cache
def tests() -> tuple[Test, ...]:
    """Every test function, with the dotted names that it reaches inside its own file and the helpers beside it."""
    found: list[Test] = []
    for path in sorted(TESTS.rglob("test_*.py")):
        own, file = _refers(path), str(path.relative_to(ROOT))
        refers = _helpers(path.parent) | own
        found += [Test(file, name, frozenset(_reach(name, refers))) for name in own if name.startswith("test_")]
    return tuple(found)


@cache
def _helpers(folder: Path) -> dict[str, set[str]]:
    """What the files of a folder mention that hold no tests, by full names."""
    files = [file for file in folder.glob("*.py") if not file.name.startswith("test_")]
    return {name: said for file in files for name, said in _refers(file, module_of(file)).items()}


def _refers(path: Path, module: str = "") -> dict[str, set[str]]:
    """Top-level name of a file -> the names that it mentions, resolved where they were imported."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names, found = names_in(tree, module), {}
    for node in tree.body:
        asked = {leaf.arg for leaf in ast.walk(node) if isinstance(leaf, ast.arg)}  # a fixture, by its name
        said = mentioned(node, names) | {f"{module}.{name}".lstrip(".") for name in asked}
        for name in defined(node):
            found.setdefault(f"{module}.{name}".lstrip("."), set()).update(said)
    return found


@cache
def tests_of(function: Function) -> tuple[Test, ...]:
    """The tests that name a function, by any of the ways in which it can be imported."""
    tails = {function.path, f"rlhf_minimal.{function.name}"}
    return tuple(test for test in tests() if tails & test.uses)


@cache
def rows_with(function: Function) -> tuple[str, ...]:
    """The rows of the tables that have this function as a cell. Each row has a transcription that it is held to."""
    from rlhf_minimal import ALGORITHMS, PAIRWISE, contrib
    from rlhf_minimal.functional import kl

    def has_it(row):
        cells = [getattr(row, one.name) for one in fields(row)]
        cells += [kl.ESTIMATORS[leash.estimator] for leash in getattr(row, "kl", ())]
        named = {(getattr(cell, "__module__", ""), cell.__name__) for cell in map(unwrapped, cells) if callable(cell)}
        return (function.module, function.name) in named

    rows = {**ALGORITHMS, **PAIRWISE, **contrib.PAIRWISE}
    return tuple(name for name, row in rows.items() if has_it(row))


def unwrapped(cell):
    """The function of a cell, without the numbers that it is given."""
    return getattr(cell, "func", cell)


def labels_in(text: str) -> list[str]:
    """Every equation label that a page or a notebook cell defines."""
    return [next(filter(None, groups)) for groups in ANY_LABEL.findall(text)]


def names_in(tree: ast.AST, module: str = "", package: str = "") -> dict[str, str]:
    """What a local name stands for: the full name of an import, or of a definition of this file."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            parts = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            source = ".".join([*parts, *([node.module] if node.module else [])])
            found |= {one.asname or one.name: f"{source}.{one.name}" for one in node.names}
        elif isinstance(node, ast.Import):
            for one in node.names:
                root = one.name.split(".")[0]
                found |= {one.asname: one.name} if one.asname else {root: root}
    for node in getattr(tree, "body", []):
        for name in defined(node):
            found[name] = f"{module}.{name}".lstrip(".")
    return found


def defined(node: ast.stmt) -> list[str]:
    """The names that a statement gives a meaning."""
    if isinstance(node, Definition):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [leaf.id for target in targets for leaf in ast.walk(target) if isinstance(leaf, ast.Name)]


def mentioned(node: ast.AST, names: dict[str, str]) -> set[str]:
    """The full names of all that a piece of code mentions: `clip`, `gates.clip`."""
    found: set[str] = set()
    for one in ast.walk(node):
        if isinstance(one, ast.Name) and one.id in names:
            found.add(names[one.id])
        elif isinstance(one, ast.Attribute):
            parts, inner = [one.attr], one.value
            while isinstance(inner, ast.Attribute):
                parts, inner = [inner.attr, *parts], inner.value
            if isinstance(inner, ast.Name) and inner.id in names:
                found.add(".".join([names[inner.id], *parts]))
    return found


def _reach(start: str, refers: dict[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    todo = [start]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            while name and name not in refers:
                name = name.rpartition(".")[0]  # of what belongs to it, such as a method
            todo += refers.get(name, ())
    return seen
