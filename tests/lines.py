"""How much there is to read: `python -m tests.lines` prints the library's lines of code by room, and the plain path.

A line of code is a line that holds more than blanks, a comment or a piece of a docstring. That is the only definition
in this repository, and both counts use it.

The plain path is what a reader passes who follows one run from its command to the first gradient. It is found by
running `train grpo --steps 1 --fast off` and noting every function of the library that is called from the entry of
`main` to the first `backward()`. A function counts whole, with its head and with the branches that this run did not
take, because a reader has to read them to know that. Left out is only what describes the command line's grammar
(`GRAMMAR`): flags and their help are looked up, not read on the way.
"""

import ast
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
COMMAND = ["train", "grpo", "--steps", "1", "--fast", "off", "--held-out", "1"]
GRAMMAR = ("parser", "add_arguments", "add_model_flag")
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
    """Lines of code of each room of the library: a folder, or a file that stands alone."""
    found: Counter[str] = Counter()
    for file in sorted(PACKAGE.rglob("*.py")):
        found[file.relative_to(PACKAGE).parts[0]] += len(code_lines(file.read_text(encoding="utf-8")))
    return found


@cache
def _functions(file: str) -> dict[tuple[str, int], set[int]]:
    source = Path(file).read_text(encoding="utf-8")
    code = code_lines(source)
    found = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            decorators = [d.lineno for d in getattr(node, "decorator_list", [])]
            assert node.end_lineno is not None
            whole = set(range(min([node.lineno, *decorators]), node.end_lineno + 1))
            name = getattr(node, "name", "<lambda>")
            for line in [node.lineno, *decorators]:
                found[name, line] = whole & code
    return found


class _Backward(BaseException):
    """The first gradient is asked for: the path ends here."""


def trace(command: list[str] = COMMAND) -> set[CodeType]:
    """Every function of the library that the command calls before its first `backward()`."""
    called: set[CodeType] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            called.add(frame.f_code)

    def stop(*args: Any, **options: Any) -> None:
        raise _Backward

    from rlhf_minimal.cli import main

    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(torch.Tensor, "backward", stop),
        patch.object(torch.autograd, "backward", stop),
        redirect_stdout(io.StringIO()),
        redirect_stderr(io.StringIO()) as errors,
    ):
        before = sys.getprofile()
        threading.setprofile(note)
        sys.setprofile(note)
        try:
            status = main([*command, "--out", str(Path(folder) / "run")])
        except _Backward:
            return called
        finally:
            sys.setprofile(before)
            threading.setprofile(None)
    raise RuntimeError(
        f"`{' '.join(command)}` ended with status {status} before its first backward: {errors.getvalue()}"
    )


def path(command: list[str] = COMMAND) -> dict[str, dict[str, int]]:
    """Lines of code of the plain path: of every file, its functions with their lines, as they are met."""
    lines: dict[str, dict[str, set[int]]] = {}
    for code in trace(command):
        own = _functions(code.co_filename).get((code.co_name, code.co_firstlineno))
        if own is not None and code.co_name not in GRAMMAR:
            file = str(Path(code.co_filename).relative_to(PACKAGE))
            lines.setdefault(file, {})[code.co_qualname] = own
    found = {}
    for file, functions in sorted(lines.items()):
        seen: set[int] = set()
        found[file] = {}
        for name, own in sorted(functions.items(), key=lambda item: (min(item[1], default=0), -len(item[1]))):
            if own - seen:  # a function inside another one is counted with it
                found[file][name] = len(own - seen)
            seen |= own
    return found


def main() -> None:
    """Prints both counts."""
    library = rooms()
    print("lines of code\n")
    for room, number in library.most_common():
        print(f"{number:6,}  {room}")
    print(f"{library.total():6,}  in all\n")
    print(f"the plain path: python -m rlhf_minimal {' '.join(COMMAND)}, to the first backward()\n")
    on_the_path = path()
    for file, functions in on_the_path.items():
        print(f"{sum(functions.values()):6,}  {file}: {', '.join(f'{name} {n}' for name, n in functions.items())}")
    print(f"{sum(sum(functions.values()) for functions in on_the_path.values()):6,}  in all")


if __name__ == "__main__":
    main()
