"""Rows and tasks of the user's own: `FILE.py:NAME`, a Python program that the command line names.

The file is run, as `python FILE.py` would run it. So it is taken from the command line and from nowhere else: a run
folder keeps the name and a checksum of the file, and to resume the run, the user names the file again. So a run folder
from a stranger never runs code.
"""

import argparse
import runpy
import shlex
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from rlhf_minimal.algorithms import get_algorithm
from rlhf_minimal.cli.settings import is_program
from rlhf_minimal.cli.starts import check_alphabet, find_device
from rlhf_minimal.lab.process_reward import StepScorer, load_step_scorer, scored_steps
from rlhf_minimal.objective import Algorithm
from rlhf_minimal.tasks import StepReward, Task, checked_steps, get_task
from rlhf_minimal.training.run_folder import check_same

Kind = TypeVar("Kind")
Function: Any = Callable  # as a kind of value


def flags(args: argparse.Namespace) -> str:
    """The programs that a command line names, as a later one has to name them again."""
    named = ((flag, getattr(args, flag.replace("-", "_"), None)) for flag in ("row", "task", "step-reward"))
    return "".join(f" --{flag} {shlex.quote(text)}" for flag, text in named if text and is_program(text))


def find_algorithm(settings: dict[str, Any], named: str | None) -> Algorithm:
    """The row that a run trains.

    Args:
        settings: The run's: `algorithm`, and under `programs` the checksums of what it was begun with, to which that of
            a new run's file is added.
        named: What `--row` says in this command line.

    Raises:
        ValueError: If there is no such row, its file cannot be run or has changed, or this command line does not name
            it.
    """
    text = settings["algorithm"]
    if named is None and not is_program(text):
        return get_algorithm(text)
    return _own(settings, text, named, "--row", Algorithm)


def find_task(settings: dict[str, Any], named: str | None) -> Task:
    """The task of a run; as `find_algorithm`, with `--task`. A file of problems has its checksum as well."""
    text = settings["task"]
    if text.startswith(("exact:", "math:")):
        check_same(settings, text, text.partition(":")[2])
    return _own(settings, text, named, "--task", Task) if is_program(text) else get_task(text)


def find_step_reward(settings: dict[str, Any], named: str | None, task: Task) -> StepReward | None:
    """What marks the steps in a run, if anything does; as `find_algorithm` (`--step-reward`), or by a scorer."""
    text = settings["step_reward"]
    if text is None or text == "task":
        return None if text is None else checked_steps(task)
    if not is_program(text):
        return scored_steps(find_scorer(text, task, settings["device"]), task)
    step_reward: StepReward = _own(settings, text, named, "--step-reward", Function)
    return step_reward


def find_scorer(folder: str, task: Task, device: str) -> StepScorer:
    """The scorer of steps in a folder, which has to read the task."""
    if not Path(folder).is_dir():
        raise ValueError(f"{folder!r} is no folder with a scorer of steps, and names no value of a Python file")
    scorer = load_step_scorer(folder)
    scorer.model.to(find_device(device))  # type: ignore[arg-type]
    check_alphabet(scorer.vocabulary, task)
    return scorer


def _own(settings: dict[str, Any], text: str, named: str | None, flag: str, kind: type[Kind]) -> Kind:
    file, _ = _split(text)
    if named != text:
        raise ValueError(f"this run has {text}, a Python program, which is run only if you name it: add {flag} {text}")
    check_same(settings, text, file)
    return load(text, kind)


def load(text: str, kind: type[Kind]) -> Kind:
    """Runs a Python file and takes one of its values.

    Args:
        text: `FILE.py:NAME`.
        kind: What the value has to be: `Algorithm`, `Task` or a function.

    Raises:
        ValueError: In one line that names file and line, if the file cannot be run; if it has no such value.
    """
    file, name = _split(text)
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
        needed = f"an rlhf_minimal {kind.__name__}" if kind in (Algorithm, Task) else "a function"
        raise ValueError(f"{file}: {what}, and {needed} is needed; {has}")
    return values[name]


def _split(text: str) -> tuple[str, str]:
    file, _, name = text.rpartition(":")
    if not is_program(text):
        raise ValueError(f"{text!r} names no value of a Python file: write FILE.py:NAME, such as my_rows.py:MINE")
    return file, name
