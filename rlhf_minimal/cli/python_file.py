"""A value of a Python file, `FILE.py:NAME`: a row or a task of the user's own. `user_code` says which files are run."""

import runpy
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

Kind = TypeVar("Kind")
Function: Any = Callable  # as a kind of value


def is_program(text: str) -> bool:
    """Whether a setting names something in a Python file (see `user_code`).

    Example:
        >>> is_program("my_rows.py:MINE"), is_program("grpo"), is_program("exact:rows.jsonl")
        (True, False, False)
    """
    return text.rpartition(":")[0].endswith(".py")


def load(text: str, kind: type[Kind]) -> Kind:
    """Runs a Python file and takes one of its values.

    Args:
        text: `FILE.py:NAME`.
        kind: What the value has to be: `Algorithm`, `Task` or a function.

    Raises:
        ValueError: In one line that names file and line, if the file cannot be run; if it has no such value.
    """
    file, name = split(text)
    if Path(file).is_dir():
        raise ValueError(f"cannot read {file}: Is a directory")
    folder = str(Path(file).resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # as for any program: it may import what stands beside it
    try:
        values = runpy.run_path(file, run_name=Path(file).stem)
    except SyntaxError as error:
        raise ValueError(f"{error.filename or file}, line {error.lineno}: {error.msg}") from error
    except (Exception, SystemExit) as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        where = f"{file}, line {lines[-1]}" if lines else f"cannot run {file}"
        raise ValueError(f"{where}: {type(error).__name__}: {error}") from error
    if not isinstance(values.get(name), kind):
        there = [other for other, value in values.items() if isinstance(value, kind) and other[:2] != "__"]
        what = f"{name} is {values[name]!r}" if name in values else f"there is no {name}"
        has = f"the file defines {', '.join(there)}" if there else "the file defines none"
        needed = "a function" if kind is Function else f"an rlhf_minimal {kind.__name__}"
        raise ValueError(f"{file}: {what}, and {needed} is needed; {has}")
    return values[name]


def split(text: str) -> tuple[str, str]:
    """The file and the name in `FILE.py:NAME`, or an error."""
    file, _, name = text.rpartition(":")
    if not is_program(text):
        raise ValueError(f"{text!r} names no value of a Python file: write FILE.py:NAME, such as my_rows.py:MINE")
    return file, name
