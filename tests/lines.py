"""How much there is to read: `python -m tests.lines` prints the library's lines of code by room, and the plain path.

A line of code is a line that holds more than blanks, a comment or a piece of a docstring. That is the only definition
in this repository, and both counts use it.

The plain path is what a reader passes who follows one run from its command to the first gradient. It is found by
running `train grpo --steps 1 --fast off` and noting every function of the library that is called from the entry of
`main` to the first `backward()`. A function counts whole, with its head and with the branches that this run did not
take, because a reader has to read them to know that. What is called as well, but hands nothing on to the loss, is
counted apart and printed beside it, by the reason in `ASIDE`: whole functions with all that they alone call, and
statements that do nothing but refuse (a `raise` and its `if`, an `assert`, a call of a check).
"""

import ast
import io
import sys
import tempfile
import threading
import tokenize
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest.mock import patch

import torch

import rlhf_minimal

PACKAGE = Path(rlhf_minimal.__file__).resolve().parent
COMMAND = ["train", "grpo", "--steps", "1", "--fast", "off", "--held-out", "1"]

# Why a function that was called is not on the path: a file, a folder, or a function's name, `*` for any end of it.
ASIDE = {
    "the grammar of the command line": ("parse*", "add_arguments", "add_model_flag"),
    "refuses what does not fit": (
        "functional/checks.py",
        "check*",
        "_check*",
        "*.__post_init__",
        "*.check_fits",
        "at_least_1",
    ),
    "writes down, reports and stops": (
        *("training/checkpoints.py", "training/run_folder.py", "training/progress.py", "training/evaluation.py"),
        *("training/metrics.py", "training/watch.py", "*.save", "OneVerifierWarning.*", "StopOnCtrlC.*", "Journal.*"),
        *("_journal", "_evaluate", "_start_policy"),  # the policy before training, for the report
        *("pointing_to_the_checkpoint", "own_versions", "adapter", "optimizer_tensors"),
    ),
    "loads the models, poses problems and scores completions": (
        *("tasks/", "time_limit.py", "vocabulary.py", "load_start", "find_device"),
        *("_begin", "Learner.begin", "_frozen_copies", "new_optimizer"),  # models, optimisers, the first checkpoint
        *(
            "with_reward_model",
            "find_step_reward",
            "_scores",
        ),  # what says how good a completion is, a verifier or a model
    ),
    "several processes": ("training/processes.py",),
}
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
def _functions(file: str) -> dict[tuple[str, int], tuple[set[int], set[int]]]:
    """Of every function in a file, by name and first line: its lines of code, and those of them that only refuse."""
    source = Path(file).read_text(encoding="utf-8")
    code, refusing = code_lines(source), refusing_lines(ast.parse(source))
    found = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            decorators = [d.lineno for d in getattr(node, "decorator_list", [])]
            assert node.end_lineno is not None
            whole = set(range(min([node.lineno, *decorators]), node.end_lineno + 1))
            name = getattr(node, "name", "<lambda>")
            for line in [node.lineno, *decorators]:
                found[name, line] = whole & code, whole & code & refusing
    return found


class _Backward(BaseException):
    """The first gradient is asked for: the path ends here."""


def trace(command: list[str] = COMMAND) -> dict[CodeType, str | None]:
    """Every function of the library that the command calls before its first `backward()`, and why it stands aside."""
    called: dict[CodeType, str | None] = {}

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and _is_ours(frame.f_code) and called.get(frame.f_code, "") is not None:
            called[frame.f_code] = _reason_on_the_stack(frame)

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


def _is_ours(code: CodeType) -> bool:
    return code.co_filename.startswith(str(PACKAGE))


def _reason_on_the_stack(frame: FrameType | None) -> str | None:
    """Why a call is not on the path: for its own reason, or for that of a function from which it was reached."""
    while frame is not None:
        if _is_ours(frame.f_code) and (reason := aside(frame.f_code)):
            return reason
        frame = frame.f_back
    return None


@cache
def aside(code: CodeType) -> str | None:
    """Why a function is not on the path, whoever calls it; None if it may be."""
    file, name = Path(code.co_filename).relative_to(PACKAGE).as_posix(), code.co_qualname
    for reason, patterns in ASIDE.items():
        for pattern in patterns:
            if fnmatch(name, pattern) or file == pattern or (pattern.endswith("/") and file.startswith(pattern)):
                return reason
    return None


def path(command: list[str] = COMMAND) -> tuple[dict[str, dict[str, int]], dict[str, Counter[str]]]:
    """Lines of code of the plain path, by file and function; and those that are not on it, by reason and file."""
    called: dict[str, list[tuple[str, str | None, set[int], set[int]]]] = {}
    for code, reason in trace(command).items():
        if own := _functions(code.co_filename).get((code.co_name, code.co_firstlineno)):
            file = Path(code.co_filename).relative_to(PACKAGE).as_posix()
            called.setdefault(file, []).append((code.co_qualname, reason, *own))
    on_it: dict[str, dict[str, int]] = {}
    beside: dict[str, Counter[str]] = {reason: Counter() for reason in ASIDE}
    for file, functions in sorted(called.items()):
        seen: set[int] = set()
        for name, reason, lines, refusing in sorted(functions, key=lambda one: (min(one[2], default=0), -len(one[2]))):
            new = lines - seen  # a function inside another one is counted with it
            seen |= lines
            beside[reason or "refuses what does not fit"][file] += len(new if reason else new & refusing)
            if reason is None and new - refusing:
                on_it.setdefault(file, {})[name] = len(new - refusing)
    return on_it, beside


def length(lines: dict[str, dict[str, int]]) -> int:
    """The sum of it all."""
    return sum(sum(numbers.values()) for numbers in lines.values())


def main() -> None:
    """Prints both counts."""
    library = rooms()
    print("lines of code\n")
    for room, number in library.most_common():
        print(f"{number:6,}  {room}")
    print(f"{library.total():6,}  in all\n")
    print(f"the plain path: python -m rlhf_minimal {' '.join(COMMAND)}, to the first backward()\n")
    on_it, beside = path()
    for file, functions in on_it.items():
        print(f"{sum(functions.values()):6,}  {file}: {', '.join(f'{name} {n}' for name, n in functions.items())}")
    print(f"{length(on_it):6,}  in all\n\ncalled as well, before it\n")
    for reason, files in beside.items():
        print(f"{sum(files.values()):6,}  {reason}: {', '.join(f'{file} {n}' for file, n in files.items() if n)}")


if __name__ == "__main__":
    main()
