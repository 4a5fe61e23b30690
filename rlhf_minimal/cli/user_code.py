"""Rows and tasks of the user's own: `FILE.py:NAME`, a Python program that the command line names.

The file is run, as `python FILE.py` would run it. So it is taken from the command line and from nowhere else: a run
folder keeps the name and a checksum of the file, and to resume the run, the user names the file again. So a run folder
from a stranger never runs code.
"""

import argparse
import shlex
from pathlib import Path
from typing import Any

from rlhf_minimal.algorithms import get_algorithm
from rlhf_minimal.cli.python_file import Function, Kind, is_program, load, split
from rlhf_minimal.cli.starts import check_alphabet, find_device
from rlhf_minimal.lab.jsonl import files_of
from rlhf_minimal.lab.process_reward import StepScorer, load_step_scorer, scored_steps
from rlhf_minimal.objective import Algorithm
from rlhf_minimal.tasks import StepReward, Task, checked_steps, get_task
from rlhf_minimal.training.run_folder import check_same


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
    """The task of a run; as `find_algorithm`, with `--task`. Files of problems have their checksums as well."""
    text = settings["task"]
    for file in [] if is_program(text) else files_of(text):
        check_same(settings, f"{text.partition(':')[0]}:{file}", file)
    return _own(settings, text, named, "--task", Task) if is_program(text) else get_task(text)


def find_step_reward(settings: dict[str, Any], named: str | None, task: Task) -> StepReward:
    """What marks the steps in a run; as `find_algorithm` (`--step-reward`), or by a scorer."""
    text = settings["step_reward"]
    if text == "task":
        return checked_steps(task)
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
    file, _ = split(text)
    if named != text:
        raise ValueError(f"this run has {text}, a Python program, which is run only if you name it: add {flag} {text}")
    check_same(settings, text, file)
    return load(text, kind)
