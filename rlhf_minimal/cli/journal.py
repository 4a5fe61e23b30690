"""Writing a run down after each step, and stopping it: Ctrl-C ends a run with a whole checkpoint."""

import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlhf_minimal.lab.trackers import Trackers
from rlhf_minimal.metrics import Metrics
from rlhf_minimal.tasks import Task
from rlhf_minimal.train_state import ALONE, Processes
from rlhf_minimal.training.progress import Progress
from rlhf_minimal.training.run_folder import RunFolder


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


class Journal:
    """After each step, writes metrics, shows progress and saves checkpoints when they are due. Ctrl-C ends the run.

    A context manager around the training loop, and at the same time the loop's `on_step`.

    Args:
        folder: The run's.
        settings: The run's; `steps` and `save_every` are read, all are kept beside a checkpoint.
        save: Writes a checkpoint, given its folder and the settings.
        shown: The metrics of the progress line, with their formats.
        done: Steps already taken, by a run that is resumed.
        processes: The processes that share the run; only the main one writes.
        trackers: Experiment trackers that receive the metrics as well.
    """

    def __init__(
        self,
        folder: RunFolder,
        settings: dict[str, Any],
        save: Callable[[Path, dict[str, Any]], None],
        shown: dict[str, str],
        done: int,
        processes: Processes = ALONE,
        trackers: Trackers | None = None,
    ):
        self.folder, self.settings, self.processes, self.trackers = folder, settings, processes, trackers
        self.write_checkpoint, self.stop = save, StopOnCtrlC()
        self.progress = Progress(settings["steps"], shown, done=done, every=settings["save_every"])
        self.done = done

    def __enter__(self) -> "Journal":
        if self.trackers is not None:
            self.trackers.begin()
        self.stop.__enter__()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self.stop.__exit__()
        self.progress.close()
        if self.trackers is not None:
            self.trackers.end()
        step = self.folder.whole_step()
        if isinstance(error, Exception) and step is not None:
            error.add_note(f"the checkpoint of step {step} in {self.folder.checkpoint} is whole")

    def is_due(self, step: int) -> bool:
        """Whether a checkpoint is written after this step, unless the run is stopped before."""
        return bool(step % self.settings["save_every"] == 0 or step == self.settings["steps"])

    def __call__(self, metrics: Metrics) -> bool:
        """Called after each step; False ends the run, after Ctrl-C."""
        self.done = int(metrics["step"])
        self.stop.asked = self.processes.all_reduce_any(self.stop.asked)
        if self.processes.is_main:
            self.folder.append(metrics)
        self.progress.update(self.done, metrics)
        if self.trackers is not None:
            self.trackers.log(metrics)
        if self.is_due(self.done) or self.stop.asked:
            self.save()
        return not self.stop.asked

    def save(self) -> None:
        """Writes a checkpoint; the metrics of its steps have reached the disk before."""
        if self.processes.is_main:
            self.folder.flush()
            self.write_checkpoint(self.folder.checkpoint, self.settings)

    def stopped(self, words: str) -> bool:
        """Whether Ctrl-C ended the run before its last step; then prints the command that resumes it."""
        if not self.stop.asked or self.done >= self.settings["steps"]:
            return False
        again = f"python -m rlhf_minimal {words} --out {shlex.quote(str(self.folder.path))} --resume"
        print(f"stopped after step {self.done}; go on with: {again}")
        return True


def warn_of_verifier_errors(folder: RunFolder) -> None:
    """One line on standard error, if the verifier has failed."""
    if errors := sum(row.get("verifier_errors", 0) for row in folder.history()):
        print(f"warning: the verifier failed on {errors} completions of this run, which got 0", file=sys.stderr)


def check_writable(folder: Path) -> None:
    """Refuses a place that could not be written, before any work is done for it."""
    parent = folder.absolute().parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise ValueError(f"cannot write {folder}: {parent} is {'not writable' if parent.is_dir() else 'no folder'}")


def mark(task: Task, score: float) -> str:
    """The score of one completion in words: right or wrong, or the number if the task grades answers."""
    if task.score_range is not None:
        return f"({score:g})"
    return "right" if score == 1 else "wrong"


def measure_of(task: Task) -> str:
    """The name of the measure that an evaluation of the task reports."""
    if task.score_range is None:
        return "accuracy"
    return "score ({:g} to {:g})".format(*task.score_range)
