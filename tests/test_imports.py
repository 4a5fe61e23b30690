"""Imports point one way. Whoever opens a file of the library can read upwards from it and never go in a circle."""

import ast
import graphlib
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "rlhf_minimal"

# room: the rooms it may import from, beside itself. "." is the package's own front door, `from rlhf_minimal import …`.
ALLOWED = {
    "functional": set(),
    "time_limit": set(),
    "contracts": {"functional"},
    "objective": {"functional", "contracts"},
    "field": {"functional", "objective"},
    "algorithms": {"functional", "objective", "field"},
    "pairwise": {"functional", "contracts", "objective"},
    "anatomy": {"functional", "contracts", "objective", "field", "algorithms", "pairwise"},
    "models": {"functional", "time_limit"},
    "tasks": {"functional", "models", "time_limit"},
    # The loop takes an Algorithm and never asks its name: it may not even see the table. The second table stands in one
    # file with its class and its loss; that the loop does not look at the rows is tested below.
    "training": {"functional", "objective", "pairwise", "models", "tasks"},
    "extras": {"functional", "objective", "models", "tasks", "training"},
    "lab": {"functional", "objective", "models", "tasks", "training"},
    "__init__": {"functional", "objective", "field", "algorithms", "pairwise", "anatomy", "models", "tasks"},
    "__main__": {"cli"},
    "cli": {
        *("functional", "objective", "field", "algorithms", "pairwise", "anatomy"),
        *("models", "tasks", "training", "extras", "."),
    },
}


def module_name(file: Path, package: Path) -> str:
    parts = file.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(source: str, module: str, *, is_package: bool) -> set[str]:
    """The modules of this package that a file names: absolute dotted names, as precise as the statement is."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                here = module.split(".")
                up = here[: len(here) - node.level + is_package]
                base = ".".join(up + ([node.module] if node.module else []))
            found |= {f"{base}.{alias.name}" for alias in node.names}
    return {name for name in found if name.split(".")[0] == PACKAGE.name}


def room(name: str, package: Path) -> str:
    """Where a dotted name lives: the first folder or file below the package, or its front door."""
    first = name.split(".")[1] if "." in name else ""
    if (package / first).is_dir() or (package / f"{first}.py").is_file():
        return first or "."
    return "."  # `from rlhf_minimal import Batch`: a name, not a module


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_a_file_imports_only_from_the_rooms_below_it(file):
    own = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert own in ALLOWED, f"{own} is a new room: say in this test what it may import"
    named = imports(file.read_text(), module_name(file, PACKAGE), is_package=file.name == "__init__.py")
    used = {room(name, PACKAGE) for name in named}
    assert used - {own} <= ALLOWED[own]


def test_training_sees_no_row_of_a_table():
    for file in FILES:
        if file.relative_to(PACKAGE).parts[0] == "training":
            named = imports(file.read_text(), module_name(file, PACKAGE), is_package=file.name == "__init__.py")
            assert {name.rpartition(".")[2] for name in named} & {"ALGORITHMS", "PAIRWISE"} == set()
            names = {leaf.attr for leaf in ast.walk(ast.parse(file.read_text())) if isinstance(leaf, ast.Attribute)}
            assert names & {"ALGORITHMS", "PAIRWISE"} == set()


def test_no_file_can_reach_itself():
    names = {module_name(file, PACKAGE): file for file in FILES}
    graph: dict[str, set[str]] = {}
    for module, file in names.items():
        graph[module] = set()
        for name in imports(file.read_text(), module, is_package=file.name == "__init__.py"):
            target = name if name in names else name.rpartition(".")[0]  # a module, or a name inside one
            if target in names and target != module:
                graph[module].add(target)
    tuple(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError, which names the circle


def test_the_reader_of_imports_sees_every_form():
    source = "import rlhf_minimal.cli\nfrom rlhf_minimal import Batch\n"
    source += "from . import kl\nfrom .masked import x\nfrom .. import y\n"
    found = imports(source, "rlhf_minimal.functional.gates", is_package=False)
    assert found == {
        "rlhf_minimal.cli",
        "rlhf_minimal.Batch",
        "rlhf_minimal.functional.kl",
        "rlhf_minimal.functional.masked.x",
        "rlhf_minimal.y",
    }
    assert room("rlhf_minimal.cli", PACKAGE) == "cli"
    assert room("rlhf_minimal.Batch", PACKAGE) == "."
    assert room("rlhf_minimal.functional.kl", PACKAGE) == "functional"
