"""`python -m tests row NAME`: what holds one row of the tables, in a minute, and where its functions are tested.

Of the tests below, those run whose parameters or whose source name the row. The other half of this file is the pytest
plugin that chooses them.
"""

import dataclasses
import difflib
import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
USAGE = "usage: python -m tests row NAME      (a row of `python -m rlhf_minimal table`; try grpo)"
# What a row lacks, transcription, other libraries' numbers, properties, identities, enumeration, anatomy; the pairs'
# table has its own.
FILES = [
    *("tests/test_rows.py", "tests/transcriptions", "tests/test_golden.py", "tests/test_golden_field.py"),
    *("tests/test_properties.py", "tests/identities"),
    *("tests/enumeration", "tests/test_anatomy.py", "tests/test_pairwise.py", "tests/test_cheat_sheet.py"),
]


# ---- the plugin: -p tests.row --row NAME --------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--row", help="run only the tests that name this row of the tables")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    name = config.getoption("--row")
    if name is None:
        return
    chosen = [item for item in items if is_about(item, name)]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
    items[:] = chosen


def is_about(item: Any, name: str) -> bool:
    """A test of each row is about the row that it is given; any other one about the rows that its source names."""
    given = getattr(item, "callspec", None)
    values = list(given.params.values()) if given else []
    words = [value for value in values if isinstance(value, str)]
    words += [word.partition(":")[0] for word in words]  # "icepop: verl 0.5_2.0", a case of a library's numbers
    named = {word for text in words for word in re.findall(r"\w+", text)}  # "trl: grpo eps=.2" names grpo
    if name in named or any(getattr(value, "name", None) == name for value in values):
        return True
    if named & set(rows()):  # given another row
        return False
    return f'"{name}"' in inspect.getsource(item.function)


# ---- the command --------------------------------------------------------------------------------------------------


def rows() -> dict[str, Any]:
    """Both tables."""
    from rlhf_minimal import ALGORITHMS, PAIRWISE

    return {**ALGORITHMS, **PAIRWISE}


def functions(row: Any) -> Iterator[Callable[..., Any]]:
    """The functions behind a row's cells, in the order of its columns; a cell may hold several KL penalties."""
    from rlhf_minimal import KL
    from rlhf_minimal.functional import kl

    for column in dataclasses.fields(row):
        cell = getattr(row, column.name)
        for part in cell if isinstance(cell, tuple) else (cell,):
            if isinstance(part, KL):
                yield getattr(kl, part.estimator)
                part = part.aggregate
            while isinstance(part, partial):
                part = part.func
            if callable(part) and not isinstance(part, type | ModuleType):
                yield part


def where(function: Callable[..., Any], tests: dict[str, str]) -> dict[str, int]:
    """test file -> how often it names a function: as `gates.clip`, by importing it, or "k3" of a KL penalty."""
    module, name = function.__module__.rpartition(".")[2], function.__name__
    estimator = f'|"{name}"' if module == "kl" else ""
    named = re.compile(rf"\b{module}\.{name}\b|import [^\n]*\b{name}\b{estimator}")
    return {file: n for file, text in tests.items() if (n := len(named.findall(text)))}


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(USAGE)
        return 2
    (name,) = arguments
    if name not in rows():
        near = difflib.get_close_matches(name, rows(), n=1, cutoff=0.0)
        print(f"error: the tables have no row {name!r}; the nearest is {near[0]}")
        return 2
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.row", "--row", name, *FILES]
    code = subprocess.run([*command, "--jaxtyping-packages=rlhf_minimal,beartype.beartype"], cwd=ROOT).returncode
    files = sorted(path for path in (ROOT / "tests").rglob("test_*.py"))
    tests = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in files}
    untested = []
    print(f"\n── where the functions of {name} are tested: how often a file names them")
    for function in dict.fromkeys(functions(rows()[name])):
        module = function.__module__.rpartition(".")[2]
        files = sorted(where(function, tests).items(), key=lambda item: -item[1])
        print(f"{module}.{function.__name__}")
        print("\n".join(f"{n:8}  {file}" for file, n in files))
        untested += [] if files else [f"{module}.{function.__name__}"]
    if untested:
        print(f"error: no test names {', '.join(untested)}")
    return 1 if code or untested else 0
