"""What the mutants of each function met with, and whether that still holds: `record.json`.

An outcome is taken over without a run when nothing that it depends on has changed:

- a mutant that a test killed: the function, as a syntax tree without docstrings and comments, its list of mutants, and
  that test: its own code, what else stands in its file (not the other tests), what this imports from `tests`, the
  fixtures that it may use, and the data files that it names. Tests that are added elsewhere cannot bring it to life.
- a mutant that survived, or ran out of time: the function and its list of mutants. When one of the tests that are
  asked about the file has changed, it is tried again, but the report is not wrong in the meantime: such a change can
  make it too modest, and the words of `explained.json` say why no test can.

What is left out, so that one line does not make everything stale: the functions that the function calls (a change there
can make a check here superfluous), the environment that the root's conftest.py prepares, and versions of packages.
`python -m tests.mutation --all` takes nothing over.
"""

import ast
import copy
import hashlib
import json
import re
from functools import cache
from pathlib import Path

from tests.mutation.mutator import Mutant, mutants
from tests.mutation.sources import ROOT, tests_of_sources

RECORD = Path(__file__).parent / "record.json"
DATA = ROOT / "tests" / "data"
KILLED, SURVIVED, TIMED_OUT, CRASHED = "killed", "survived", "timed out", "crashed"
MODULE = "the module"  # the part of a file that stands outside of its functions

Function = tuple[str, str]  # the file from the root, and the qualified name or MODULE


def digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


# ---- the library ---------------------------------------------------------------------------------------------------


def code_hashes(source: str, found: list[Mutant]) -> dict[str, str]:
    """By qualified name, and under MODULE for what is left of the file without the functions' bodies."""
    tree = without_docstrings(ast.parse(source))
    changes: dict[str, list[str]] = {}
    for mutant in found:
        changes.setdefault(mutant.function or MODULE, []).append(mutant.change)
    functions: dict[str, list[str]] = {}

    def walk(node, classes):
        for child in getattr(node, "body", []):
            if isinstance(child, ast.FunctionDef):  # a property's getter and setter have one name
                functions.setdefault(".".join([*classes, child.name]), []).append(ast.dump(child))
                child.body = []
            else:
                walk(child, [*classes, child.name] if isinstance(child, ast.ClassDef) else classes)

    walk(tree, [])
    functions[MODULE] = [ast.dump(tree)]
    return {name: digest(*dumps, *changes.get(name, [])) for name, dumps in functions.items()}


def without_docstrings(tree: ast.AST) -> ast.AST:
    tree = copy.deepcopy(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", None), str):
                del node.body[0]
    return tree


# ---- the tests ------------------------------------------------------------------------------------------------------


@cache
def parsed(path: Path) -> ast.Module:
    return without_docstrings(ast.parse(path.read_text()))


def is_test(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name.lower().startswith("test")


@cache
def hashes(path: Path) -> dict[str, str]:
    """Of a test file: each test under its name, and under "" all else."""
    tests = {node.name: digest(ast.dump(node)) for node in parsed(path).body if is_test(node)}
    return tests | {"": digest(*(ast.dump(node) for node in parsed(path).body if not is_test(node)))}


@cache
def around(path: Path) -> str:
    """What a test file leans on: all that it imports from `tests`, its fixtures, the data files that it names."""
    texts, todo = {path: path.read_text()}, [path]
    while todo:
        for module in imported(todo.pop()):
            file = ROOT.joinpath(*module.split(".")).with_suffix(".py")
            if file.exists() and file not in texts:
                texts[file] = file.read_text()
                todo.append(file)
    words = set(re.findall(r"\w+", " ".join(texts.values())))
    parts = [ast.dump(parsed(file)) for file in texts if file != path]
    for folder in (folder for folder in path.parents if folder.is_relative_to(ROOT / "tests")):
        if (folder / "conftest.py").exists():
            for node in parsed(folder / "conftest.py").body:
                name = getattr(node, "name", "pytest_")  # what is no function runs for every test, as hooks do
                if name in words or name.startswith("pytest_") or "autouse" in ast.dump(node):
                    parts.append(ast.dump(node))
    named = [file for file in sorted(DATA.glob("*")) if any(file.name in text for text in texts.values())]
    return digest(*parts, *(file.read_text() for file in named))


def imported(path: Path) -> list[str]:
    """The modules of `tests` that a file names in its imports."""
    names = []
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [name for name in names if name.partition(".")[0] == "tests"]


@cache
def test_hash(nodeid: str) -> str | None:
    """Of a test, `tests/test_x.py::test_y[case]`, or a file that could not be collected; None if it is gone."""
    file, _, rest = nodeid.partition("::")
    name, _, case = rest.partition("[")
    path = ROOT / file
    name = name.partition("::")[0]  # of a class, if the test stands in one
    if not path.exists() or name not in hashes(path):
        return None
    # A transcription is not imported by name: a case that is named after a file beside its test reads that file.
    beside = [path.parent / f"{word}.py" for word in re.split(r"[\[\]-]", case) if word]
    files = [ast.dump(parsed(file)) for file in beside if file.exists()]
    own = [hashes(path)[name], hashes(path)[""]] if name else hashes(path).values()
    return digest(*own, around(path), *files)


@cache
def tests_hash(source: str) -> str:
    """Of all tests that are asked about a source."""
    files = tests_of_sources()[ROOT / source]
    return digest(*(part for file in files for part in (*hashes(file).values(), around(file))))


# ---- the record -----------------------------------------------------------------------------------------------------


class Record:
    """Outcomes by function, one for each of its mutants in their order.

    An outcome is None (not tried), SURVIVED, TIMED_OUT, CRASHED, or the (name, hash) of the test that killed.
    """

    def __init__(self):
        self.functions: dict[Function, dict] = {}

    @classmethod
    def load(cls) -> "Record":
        record = cls()
        if RECORD.exists():
            data = json.loads(RECORD.read_text())
            for file, functions in data["functions"].items():
                for name, entry in functions.items():
                    outcomes = [tuple(data["killers"][x]) if isinstance(x, int) else x for x in entry["outcomes"]]
                    record.functions[file, name] = entry | {"outcomes": outcomes}
        return record

    def save(self) -> None:
        killers = sorted({x for entry in self.functions.values() for x in entry["outcomes"] if isinstance(x, tuple)})
        number = {killer: i for i, killer in enumerate(killers)}
        functions: dict[str, dict] = {}
        for (file, name), entry in sorted(self.functions.items()):
            functions.setdefault(file, {})[name] = entry | {"outcomes": [number.get(x, x) for x in entry["outcomes"]]}
        lines = ['{\n"killers": [']
        lines.append(",\n".join(json.dumps(killer) for killer in killers))
        lines.append('],\n"functions": {')
        texts = []
        for file, entries in functions.items():
            rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in entries.items())
            texts.append(f"{json.dumps(file)}: {{\n{rows}\n}}")
        lines.append(",\n".join(texts))
        lines.append("}\n}\n")
        scratch = RECORD.with_suffix(".new")
        scratch.write_text("\n".join(lines))
        scratch.replace(RECORD)

    def outcomes(self, function: Function, code: str, count: int) -> list:
        """Those of a function as it is now: what was found when it was another one counts for nothing."""
        entry = self.functions.get(function)
        if entry is None or entry["code"] != code or len(entry["outcomes"]) != count:
            return [None] * count
        return [None if isinstance(x, tuple) and test_hash(x[0]) != x[1] else x for x in entry["outcomes"]]


def kind(outcome) -> str:
    return KILLED if isinstance(outcome, tuple) else outcome or "not tried"


class Now:
    """The record beside the files as they are: which outcomes hold, and which functions have to be tried again."""

    def __init__(self, record: Record):
        self.record = record
        self.mutants: dict[Function, list[Mutant]] = {}
        self.codes: dict[Function, str] = {}
        for path in tests_of_sources():
            file, source = str(path.relative_to(ROOT)), path.read_text()
            found = mutants(source)
            for mutant in found:
                self.mutants.setdefault((file, mutant.function or MODULE), []).append(mutant)
            self.codes |= {(file, name): code for name, code in code_hashes(source, found).items()}
        self.outcomes = {
            function: record.outcomes(function, self.codes[function], len(found))
            for function, found in self.mutants.items()
        }

    def stale(self) -> dict[Function, str]:
        """Functions of which the record does not say what their mutants meet with today, and why it does not."""
        why = {}
        for function, outcomes in self.outcomes.items():
            entry = self.record.functions.get(function)
            if None not in outcomes:
                continue
            if entry is None:
                why[function] = "never tried"
            elif entry["code"] != self.codes[function]:
                why[function] = "changed since they were tried"
            elif None in entry["outcomes"]:
                why[function] = "not tried to the end"
            else:
                why[function] = "killed by tests that have changed since"
        return why

    def to_try(self) -> list[tuple[Function, int]]:
        """Every mutant without an outcome that holds, and the survivors whose tests have changed."""
        work = []
        for function, outcomes in self.outcomes.items():
            asked = self.record.functions.get(function, {}).get("tests")
            again = asked != tests_hash(function[0])
            work += [(function, i) for i, x in enumerate(outcomes) if x is None or (again and kind(x) != KILLED)]
        return work
