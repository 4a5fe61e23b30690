"""What the commands share: starts, devices, and how a run is settled, stopped and reported."""

import argparse
import json
import os
import platform
import re
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
import torch
import transformers
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from transformers import PreTrainedModel

from rlhf_minimal import __version__
from rlhf_minimal.extras import curves
from rlhf_minimal.models import SHORT_NAMES, TokenizerVocabulary, Vocabulary, load_pretrained, tiny_llama
from rlhf_minimal.models.folder import find_checkpoint
from rlhf_minimal.tasks import Task, VerifierWarning
from rlhf_minimal.training import load_policy
from rlhf_minimal.training.checkpoints import cannot_write, write_file
from rlhf_minimal.training.metrics import Metrics
from rlhf_minimal.training.run_folder import RunFolder

ASSETS = Path(__file__).parent / "assets"


def one_line(error: BaseException) -> str:
    """What an error says, and what was noted with it, as one line that a terminal can show."""
    text = "; ".join([str(error) or type(error).__name__, *getattr(error, "__notes__", [])])
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in " ".join(text.split()))


@contextmanager
def pointing_to_the_checkpoint(folder: RunFolder) -> Iterator[None]:
    """Notes with every error that stops a run which checkpoint is left of it."""
    try:
        yield
    except Exception as error:
        step = folder.whole_step()
        if step is not None:
            error.add_note(f"the checkpoint of step {step} in {folder.checkpoint} is whole")
        raise


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Names the file in an error of the system, for writers that do not."""
    try:
        yield
    except OSError as error:
        raise ValueError(cannot_write(path, error)) from error


def settle(
    args: argparse.Namespace,
    defaults: Mapping[str, Any],
    given: Mapping[str, Any],
    *,
    kinds: Mapping[str, Any],
    may_change: tuple[str, ...],
    name: str,
) -> tuple[RunFolder, dict[str, Any]]:
    """The folder of a run and its settings: what was given, else what a resumed run keeps, else the defaults.

    Args:
        args: The flags `out`, `resume` and `overwrite`.
        defaults: Every setting of the command, and its name under `command`.
        given: The settings that stand in the command line.
        kinds: The type of every setting, to check those of a resumed run.
        may_change: What a resumed run may be given anew.
        name: What a new run is called, before its task and the time.

    Raises:
        ValueError: If there is no such run to resume, or if it was begun with another setting than the one given.
    """
    kept: dict[str, Any] = {}
    if args.resume:
        if args.overwrite or not args.out:
            raise ValueError("--resume needs --out with the run to continue, and no --overwrite")
        folder = RunFolder(args.out)
        kept = folder.settings(defaults["command"], kinds)
        folder.check_resumable()
        warn_of_other_versions(folder, kept["versions"])
        for setting, value in given.items():
            if setting not in may_change and kept[setting] != value:
                *some, last = [f"--{free.replace('_', '-')}" for free in may_change]
                flags = f"{', '.join(some)} and {last}" if some else last
                raise ValueError(
                    f"the run in {folder.path} has {setting} {kept[setting]}, not {value}; a resumed run keeps its "
                    f"settings, only {flags} may change"
                )
    else:
        task = given.get("task", defaults["task"])
        plain = re.sub(r"[^\w.]+", "-", task)  # a task may be named by a file, or with settings of its own
        folder = RunFolder(args.out or f"runs/{name}-{plain}-{time.strftime('%Y%m%d-%H%M%S')}")
    return folder, {**defaults, **kept, **given, "versions": own_versions()}


def report(
    folder: RunFolder, text: str, measured: Mapping[str, Any], draw: Callable[[Axes, list[Metrics]], None]
) -> None:
    """The end of a run, written into its folder and printed.

    Args:
        folder: The run's.
        text: The report, without a last line end.
        measured: What is kept as `evaluation.json`.
        draw: Puts the run's steps into the learning curve.
    """
    write_file(folder.report, text + "\n")
    write_file(folder.evaluation, json.dumps(measured, indent=2) + "\n")
    figure = Figure(layout="constrained")
    FigureCanvasAgg(figure)
    with matplotlib.rc_context(curves.STYLE):
        ax = figure.add_subplot()
        draw(ax, folder.history())
        ax.legend()
    with writing(folder.picture):
        figure.savefig(folder.picture, dpi=120)
    print(f"\n{text}\n")
    print(f"run folder: {folder.path} (learning-curve.png, evaluation.json, metrics.jsonl, config.json, checkpoint/)")


def in_brief(text: str, most: int = 48) -> str:
    """A prompt or an answer as one cell of a table: on one line, and no longer than that."""
    text = " ".join(text.split()) if "\n" in text else text
    return text if len(text) <= most else text[: most - 1] + "…"


def own_versions() -> dict[str, str]:
    """What the numbers of a run may depend on."""
    found = {"rlhf_minimal": __version__, "torch": torch.__version__, "transformers": transformers.__version__}
    return {**found, "python": platform.python_version()}


def warn_of_other_versions(folder: RunFolder, before: dict[str, str]) -> None:
    """One line if a run is resumed under other versions than it was begun with: its last bits may then differ."""
    changed = [f"{name} {before.get(name)} -> {own}" for name, own in own_versions().items() if before.get(name) != own]
    if changed:
        print(
            f"warning: {folder.path} was begun with other versions ({', '.join(changed)}); numbers may differ from "
            "those of an uninterrupted run",
            file=sys.stderr,
        )


class OneVerifierWarning(warnings.catch_warnings):
    """The first failure of a verifier is one line on standard error; the metrics count the others."""

    def __init__(self) -> None:
        super().__init__(record=False)
        self.told = False

    def __enter__(self) -> None:
        super().__enter__()
        warnings.simplefilter("always", VerifierWarning)
        show = warnings.showwarning

        def tell(message: Warning | str, category: type[Warning], *rest: Any, **named: Any) -> None:
            if not issubclass(category, VerifierWarning):
                show(message, category, *rest, **named)
            elif not self.told:
                self.told = True
                print(f"warning: {one_line(Exception(message))}", file=sys.stderr)

        warnings.showwarning = tell


class StopOnCtrlC:
    """The first Ctrl-C lets the step finish, so that the checkpoint is whole; the second stops at once."""

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> None:
        self._before = signal.signal(signal.SIGINT, self._ask)

    def __exit__(self, *exception: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _ask(self, *signal_and_frame: object) -> None:
        self.asked = True
        signal.signal(signal.SIGINT, self._before)


def add_model_flag(sub: Any, instead_of: str) -> None:
    """The flag that names a real model, for a command's grammar or a group of its flags."""
    sub.add_argument(
        "--model",
        metavar="NAME",
        help=f"a real language model instead of {instead_of}: a Hugging Face name, a folder, a .gguf file, or "
        + ", ".join(SHORT_NAMES),
    )


def model_as_start(args: argparse.Namespace) -> None:
    """`--model NAME` is the start hf:NAME."""
    if args.model is not None:
        if args.start is not None:
            raise ValueError("--model and --start both name what training begins with: give one of them")
        args.start = f"hf:{args.model}"


def load_start(
    name: str, task: Task, seed: int, chat: str = "auto"
) -> tuple[PreTrainedModel, Vocabulary | TokenizerVocabulary, str]:
    """The policy that training begins with, and how to describe it."""
    if name == "shipped" and (ASSETS / task.name).is_dir() and chat == "auto":
        return *load_policy(ASSETS / task.name), f"shipped ({task.name})"
    if name in ("shipped", "untrained") and chat == "auto":
        return *untrained(task, seed), "untrained"
    if name.startswith("hf:"):
        use = {"auto": None, "on": True, "off": False}[chat]
        return *load_pretrained(name.removeprefix("hf:"), chat=use), name
    if chat != "auto":
        raise ValueError("--chat goes with --model: a checkpoint keeps how its prompts are written")
    return *load_policy(name), str(find_checkpoint(name))


def untrained(task: Task, seed: int) -> tuple[PreTrainedModel, Vocabulary]:
    """A new model that speaks the task's alphabet."""
    if not task.alphabet:
        raise _needs_real_model(task)
    vocabulary = Vocabulary(task.alphabet)
    return tiny_llama(len(vocabulary), seed=seed), vocabulary


def check_alphabet(vocabulary: Vocabulary | TokenizerVocabulary, task: Task) -> None:
    """Refuses a model that cannot write the task."""
    if isinstance(vocabulary, Vocabulary) and not task.alphabet:
        raise _needs_real_model(task)
    if isinstance(vocabulary, Vocabulary) and not set(task.alphabet) <= set(vocabulary.alphabet):
        raise ValueError(
            f"this checkpoint knows {vocabulary.alphabet!r}, but {task.name} is written in {task.alphabet!r}"
        )


def _needs_real_model(task: Task) -> ValueError:
    return ValueError(
        f"{task.name} is asked in plain language, and this start knows single characters only: give a real model with "
        "--model NAME"
    )


def find_device(name: str) -> torch.device:
    """The device of that name, if this machine has it."""
    if name.partition(":")[0] not in ("cpu", "cuda", "mps"):
        raise ValueError(f"cannot use the device {name!r}: expected cpu, cuda or mps")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"cannot use the device {name!r}: {reason}") from error
    return device


def check_writable(folder: Path) -> None:
    """Refuses a place that could not be written, before any work is done for it."""
    parent = folder.absolute().parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise ValueError(f"cannot write {folder}: {parent} is {'not writable' if parent.is_dir() else 'no folder'}")


def at_least_1(given: Mapping[str, Any], *names: str) -> None:
    """Refuses flags below 1."""
    for name in names:
        if given[name] < 1:
            flag = f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"
            raise ValueError(f"{flag} must be at least 1; got {given[name]}")
