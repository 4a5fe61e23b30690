"""How much there is to read: `python -m tests.lines` prints the library's lines of code by room, and the walk.

A line of code is a line that holds more than blanks, a comment or a piece of a docstring.

The core is what stands directly in `rlhf_minimal/`, in `functional/` and in `tasks/`; `contrib/` holds more rows of the
table, `lab/` what makes training fast, shares it, or serves other tools.

The walk is what somebody passes who follows the README's command from its first word to the first step of the
optimiser: every function of the library that `train grpo` calls until then, found by running it. A function counts
whole, with its head and with the branches that this run did not take, because a reader has to read them to know that.
Nothing is subtracted.
"""

import ast
import importlib
import io
import sys
import tempfile
import threading
import tokenize
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest.mock import patch

import torch

import rlhf_minimal

PACKAGE = Path(rlhf_minimal.__file__).resolve().parent
COMMAND = ["train", "grpo", "--steps", "1"]
CORE = (".", "functional", "tasks")

LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def code_lines(source: str) -> set[int]:
    """The numbers of a file's lines of code.

    Example:
        >>> sorted(code_lines('"What it is."\\n\\nx = (  # why\\n    1\\n)\\n# a comment\\n'))
        [3, 4, 5]
    """
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {line for token in tokens if token.type not in LAYOUT for line in range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                assert first.end_lineno is not None
                lines -= set(range(first.lineno, first.end_lineno + 1))
    return lines


def rooms() -> Counter[str]:
    """Lines of code of each room of the library: `.` for the files that stand directly in it, else a folder."""
    found: Counter[str] = Counter()
    for file in sorted(PACKAGE.rglob("*.py")):
        first, *more = file.relative_to(PACKAGE).parts
        found[first if more else "."] += len(code_lines(file.read_text(encoding="utf-8")))
    return found


def core(found: Counter[str]) -> int:
    """Lines of code of the core."""
    return sum(found[room] for room in CORE)


def public_names() -> list[str]:
    """The functions and classes of the core whose names do not begin with an underscore, methods not counted."""
    files = [file for room in CORE for file in sorted((PACKAGE / room).glob("*.py"))]
    kinds = ast.FunctionDef | ast.ClassDef
    return [
        f"{file.relative_to(PACKAGE)}:{node.name}"
        for file in files
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, kinds) and not node.name.startswith("_")
    ]


def refusing_lines(tree: ast.AST) -> set[int]:
    """The lines of statements that can do nothing but raise an error."""

    def refuses(node: ast.stmt) -> bool:
        if isinstance(node, ast.If):
            return all(map(refuses, [*node.body, *node.orelse]))
        called = node.value.func if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) else None
        name = called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
        return isinstance(node, ast.Raise | ast.Assert) or name.lstrip("_").startswith("check")

    statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and refuses(node)]
    return {line for node in statements for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}


@cache
def _functions(file: str) -> dict[tuple[str, int], set[int]]:
    """Of every function in a file, by name and first line: its lines of code."""
    source = Path(file).read_text(encoding="utf-8")
    code, found = code_lines(source), {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            decorators = [d.lineno for d in getattr(node, "decorator_list", [])]
            assert node.end_lineno is not None
            whole = set(range(min([node.lineno, *decorators]), node.end_lineno + 1))
            for line in [node.lineno, *decorators]:
                found[getattr(node, "name", "<lambda>"), line] = whole & code
    return found


class _Step(BaseException):
    """The optimiser steps for the first time: the walk ends here."""


def trace(command: list[str] = COMMAND) -> set[CodeType]:
    """Every function of the library that the command calls before the first step of an optimiser."""
    called: set[CodeType] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            called.add(frame.f_code)

    def stop(*args: Any, **options: Any) -> None:
        raise _Step

    from rlhf_minimal.cli import main

    importlib.import_module(
        f"rlhf_minimal.cli.{command[0]}"
    )  # what a module does when it is imported is not on the walk
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(torch.optim.AdamW, "step", stop),
        redirect_stdout(io.StringIO()),
        redirect_stderr(io.StringIO()) as errors,
    ):
        before = sys.getprofile()
        threading.setprofile(note)
        sys.setprofile(note)
        try:
            status = main([*command, "--out", str(Path(folder) / "run")])
        except _Step:
            return called
        finally:
            sys.setprofile(before)
            threading.setprofile(None)
    raise RuntimeError(f"`{' '.join(command)}` ended with status {status} before its first step: {errors.getvalue()}")


def walk(command: list[str] = COMMAND) -> dict[str, dict[str, int]]:
    """Lines of code on the walk, by file and function; a function inside another one is counted with it."""
    found: dict[str, dict[str, int]] = {}
    seen: dict[str, set[int]] = {}
    functions = []
    for code in trace(command):
        if lines := _functions(code.co_filename).get((code.co_name, code.co_firstlineno)):
            file = Path(code.co_filename).relative_to(PACKAGE).as_posix()
            functions.append((file, code.co_qualname, lines))
    for file, name, lines in sorted(functions, key=lambda one: (one[0], min(one[2]), -len(one[2]))):
        if new := lines - seen.setdefault(file, set()):
            seen[file] |= lines
            found.setdefault(file, {})[name] = len(new)
    return found


def length(lines: dict[str, dict[str, int]]) -> int:
    """The sum of it all."""
    return sum(sum(numbers.values()) for numbers in lines.values())


def main() -> None:
    """Prints all counts."""
    library = rooms()
    print("lines of code\n")
    for room, number in library.most_common():
        print(f"{number:6,}  {room}")
    print(f"{core(library):6,}  in the core: {', '.join(CORE)}, with {len(public_names())} public names")
    print(f"{library.total():6,}  in all\n")
    print(f"the walk: python -m rlhf_minimal {' '.join(COMMAND)}, to the first step of the optimiser\n")
    on_it = walk()
    for file, functions in on_it.items():
        print(f"{sum(functions.values()):6,}  {file}: {', '.join(f'{name} {n}' for name, n in functions.items())}")
    print(f"{length(on_it):6,}  in {len(on_it)} files")


if __name__ == "__main__":
    main()
