"""Imports point one way. Whoever opens a file of the library can read upwards from it and never go in a circle."""

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "rlhf_minimal"

MATHS = {"functional", "contracts", "objective", "pairs", "algorithms", "anatomy"}
LOOP = {"config", "sample", "train_state", "optimizer", "metrics", "kl_control", "reward_scaling", "train", "evaluate"}

# room: the rooms it may import from, beside itself. "." is the package's own front door, `from rlhf_minimal import …`.
# Inside a set the test below forbids circles.
ALLOWED = {
    "functional": set(),
    "timeouts": set(),
    "renamed": set(),
    "contracts": {"functional"},
    "objective": {"functional", "contracts"},
    "algorithms": {"functional", "objective"},
    "contrib": {"functional", "objective", "pairs"},  # nobody but the front page and `lab` imports it
    "pairs": {"functional", "contracts", "objective"},
    "anatomy": MATHS,
    "vocabulary": {"functional", "timeouts"},
    "model_files": {"vocabulary"},
    "models": {"functional", "timeouts", "vocabulary", "model_files"},
    "tasks": {"functional", "models", "vocabulary", "timeouts"},
    # The loop takes an Algorithm and never asks its name: it may not even see the table.
    **dict.fromkeys(LOOP, LOOP | {"functional", "objective", "models", "vocabulary", "tasks", "renamed"}),
    "fit": LOOP | {"vocabulary", "functional", "objective", "pairs", "models", "tasks", "training"},
    "runs": LOOP | {"objective", "models", "model_files", "training"},
    "training": LOOP | {"models", "model_files"},
    "lab": LOOP
    | {"vocabulary", "timeouts", "functional", "objective", "contrib", "pairs", "models", "model_files", "tasks"}
    | {"training", "fit"},
    "__init__": MATHS | {"contrib", "models", "tasks"},
    "__main__": {"cli"},
    "cli": MATHS
    | LOOP
    | {"vocabulary", "timeouts", "models", "model_files", "tasks", "training", "lab", "runs", "fit", "."},
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


CORE = [f for f in FILES if f.relative_to(PACKAGE).parts[0] in ("functional", "tasks") or f.parent == PACKAGE]


@pytest.mark.parametrize("file", CORE, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_the_core_imports_neither_contrib_nor_lab(file):
    """The package's face alone does, to join the tables."""
    if file == PACKAGE / "__init__.py":
        return
    named = imports(file.read_text(), module_name(file, PACKAGE), is_package=file.name == "__init__.py")
    assert {room(name, PACKAGE) for name in named} & {"contrib", "lab"} == set()
    assert not any(name.split(".")[-1] in ("contrib", "lab") for name in named)  # through the face


def test_the_table_is_printed_without_transformers_tasks_or_lab():
    """Who looks at the table waits for neither. Another process, because this one has long imported them."""
    code = "import sys; from rlhf_minimal.cli import main; main(['table', '--all']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parent)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert {"torch", "rlhf_minimal.anatomy"} <= loaded
    assert not loaded & {"transformers", "matplotlib", "rlhf_minimal.tasks", "rlhf_minimal.lab", "rlhf_minimal.train"}


def test_the_loop_sees_no_row_of_a_table():
    for file in FILES:
        if file.relative_to(PACKAGE).parts[0].removesuffix(".py") in {*LOOP, "training", "runs"}:
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
