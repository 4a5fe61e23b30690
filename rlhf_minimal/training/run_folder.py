"""A run on disk: its settings, the metrics of every step, and the latest checkpoint.

config.json  metrics.jsonl  checkpoint/        and, at the end, evaluation.json, report.txt, learning-curve.png
run.lock                                       the process that writes here, or did so last
"""

import contextlib
import difflib
import hashlib
import json
import math
import os
import types
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Literal, Union, get_args, get_origin

from rlhf_minimal.metrics import Metrics
from rlhf_minimal.model_files import backup_path, find_checkpoint
from rlhf_minimal.training.checkpoints import FORMAT, check_format, clear_io_errors, flush, remove, write_file

_FILES = ("config.json", "metrics.jsonl", "evaluation.json", "report.txt", "learning-curve.png")
_ROWS = ("rows.jsonl", "held-out.jsonl")  # of the supervised commands

_OF_MODELS = (".json", ".safetensors", ".model", ".txt", ".jinja")  # what a model and its tokenizer are loaded from


class RunFolder:
    """Paths and files of one run.

    Args:
        path: The run's folder.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.checkpoint = self.path / "checkpoint"
        self.reference = self.path / "reference"  # the policy before training, for the command prefer
        self.metrics = self.path / "metrics.jsonl"
        self.picture = self.path / "learning-curve.png"
        self.evaluation = self.path / "evaluation.json"
        self.report = self.path / "report.txt"
        self.lock = self.path / "run.lock"
        self._held: IO[str] | None = None

    def hold(self) -> None:
        """Keeps other processes from writing here until this one has ended, however it ends.

        Raises:
            ValueError: If another process writes here; the message names it.
        """
        try:
            import fcntl
        except ImportError:
            return  # Windows has no such locks, and runs go on without
        with clear_io_errors(self.lock):
            self._held = self.lock.open("a+", encoding="utf-8")
        try:
            fcntl.lockf(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:  # which of the two depends on the system
            self._held.seek(0)
            raise ValueError(
                f"process {self._held.read().strip() or 'of another machine'} is writing into {self.path}: wait until "
                "it has ended or stop it, or name another folder with --out"
            ) from error
        except OSError:
            return  # a file system without locks
        self._held.truncate(0)
        self._held.write(f"{os.getpid()}\n")
        self._held.flush()

    def check_free(self, *, overwrite: bool = False) -> None:
        """Refuses a folder that holds something.

        Raises:
            ValueError: If it holds a run and `overwrite` is not set, or files that do not belong to a run.
        """
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"{self.path} is a file; --out names a folder")
        names = {path.name.removesuffix(".new") for path in self.path.iterdir()} if self.path.is_dir() else set()
        holds_run = {"config.json", self.metrics.name} <= names
        # A process that was killed while it made the folder leaves only files of a run, the lock among them.
        folders = {place.name for own in (self.checkpoint, self.reference) for place in (own, backup_path(own))}
        begun = bool({self.metrics.name, self.lock.name} & names) and names <= {
            *(self.lock.name, *_FILES, *_ROWS, *folders)
        }
        if holds_run and not overwrite:
            raise ValueError(f"{self.path} already holds a run: --resume continues it, --overwrite replaces it")
        if begun and not overwrite:
            raise ValueError(f"{self.path} holds a run that was killed before it began: --overwrite starts it again")
        if names and not (holds_run or begun):
            raise ValueError(f"{self.path} holds files that do not belong to a run; name another folder with --out")

    def create(self, settings: dict[str, Any], *, overwrite: bool = False) -> None:
        """Makes the folder and writes `config.json`.

        Raises:
            ValueError: As `check_free`, or if the place cannot be written.
        """
        self.check_free(overwrite=overwrite)
        with clear_io_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            self.hold()
            if overwrite:  # keep the metrics, which mark the folder as that of a run
                for folder in (self.checkpoint, self.reference):
                    remove(folder)
                    remove(backup_path(folder))
                for name in {*_ROWS, *_FILES} - {self.metrics.name}:
                    (self.path / name).unlink(missing_ok=True)
        write_file(self.metrics, "")
        self.write_settings(settings)

    def settings(self, command: str | None = None, kinds: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What `config.json` says.

        Args:
            command: The command whose run this should be; None takes any.
            kinds: The type of every setting that belongs there; None checks neither names nor types.

        Raises:
            ValueError: If there is no run here, another version or another command wrote it, the file is damaged, or a
                setting is unknown, missing or of another type.
        """
        file = self.path / "config.json"
        try:
            settings = json.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise ValueError(f"no run in {self.path}: it holds no config.json") from error
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{file} is damaged: {error}") from error
        if not isinstance(settings, dict):
            raise ValueError(f"{file} is damaged: expected an object")
        check_format(settings, f"the run in {self.path}")
        if command is not None and settings.get("command") != command:
            raise ValueError(f"the run in {self.path} was made by the command {settings.get('command')}, not {command}")
        if kinds is not None:
            check_settings(settings, {**kinds, "command": str, "format": int, "versions": dict}, file)
        return settings

    def check_resumable(self, settings: Mapping[str, Any], may_change: tuple[str, ...]) -> None:
        """Refuses a run that has no checkpoint, or one whose settings are not those of its checkpoint.

        Args:
            settings: What `config.json` says.
            may_change: Settings that may be others.

        Raises:
            ValueError: If it was killed before it wrote its first one, or `config.json` was edited since the last.
        """
        try:
            checkpoint = find_checkpoint(self.checkpoint)
        except ValueError as error:
            raise ValueError(
                f"no checkpoint in {self.path}: the run was killed before it wrote one; --overwrite starts it again"
            ) from error
        notes: Any = {}  # also if they cannot be read: whoever loads the checkpoint says what is wrong
        with contextlib.suppress(OSError, ValueError, RecursionError):
            notes = json.loads((checkpoint / "trainer.json").read_text(encoding="utf-8"))
        for name, value in settings.items() if isinstance(notes, dict) else ():
            if name not in (*may_change, "versions", "format") and notes.get(name, value) != value:
                raise ValueError(
                    f"{self.path / 'config.json'}: {name} is {value!r}, and the checkpoint was written with "
                    f"{notes[name]!r}: put it back, since a resumed run keeps its settings"
                )

    def whole_step(self) -> int | None:
        """The step of the checkpoint that would be resumed from; None if there is none."""
        try:
            notes = (find_checkpoint(self.checkpoint) / "trainer.json").read_text(encoding="utf-8")
            return int(json.loads(notes)["step"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write_settings(self, settings: dict[str, Any]) -> None:
        """Writes `config.json`."""
        write_file(self.path / "config.json", json.dumps({**settings, "format": FORMAT}, indent=2) + "\n")

    def append(self, metrics: Metrics) -> None:
        """One more line of `metrics.jsonl`.

        Raises:
            ValueError: If a metric is infinite or not a number, which JSON cannot hold, or the file cannot be written.
        """
        if wrong := [f"{name} is {value}" for name, value in metrics.items() if not math.isfinite(value)]:
            raise ValueError(f"step {metrics['step']}: {', '.join(wrong)}: the policy or the reward has gone astray")
        with clear_io_errors(self.metrics), self.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(metrics, allow_nan=False) + "\n")

    def flush(self) -> None:
        """Waits until `metrics.jsonl` has reached the disk: before a checkpoint that says its steps are done."""
        with clear_io_errors(self.metrics):
            flush(self.metrics)

    def history(self, up_to: int | None = None) -> list[Metrics]:
        """The steps written so far; steps after `up_to` are left out.

        Raises:
            ValueError: If the file is missing, or damaged before its last line.
        """
        try:
            lines = self.metrics.read_text(encoding="utf-8").splitlines()
            rows = [_metrics(line) for line in lines[:-1]]
        except (OSError, ValueError) as error:
            raise ValueError(f"cannot read {self.metrics}: {error}") from error
        try:
            rows += [_metrics(line) for line in lines[-1:]]
        except ValueError:
            pass  # a process killed while writing leaves half a last line; its step is done again
        return [row for row in rows if up_to is None or row["step"] <= up_to]

    def rewind(self, step: int) -> None:
        """Drops the lines of steps after the checkpoint: a resumed run writes them again.

        Raises:
            ValueError: If the steps up to it are not all there, once each.
        """
        kept = self.history(step)
        if [row["step"] for row in kept] != list(range(1, step + 1)):
            raise ValueError(
                f"{self.metrics} has {len(kept)} lines for the {step} steps of the checkpoint, and should have each "
                "step once: put it back as it was, or begin a new run from the checkpoint with --start"
            )
        write_file(self.metrics, "".join(json.dumps(row) + "\n" for row in kept))


def check_same(settings: dict[str, Any], name: str, file: str | Path) -> None:
    """Notes a checksum in the settings of a new run; refuses a resumed run whose file or model has changed.

    Args:
        settings: The run's; `programs` keeps the checksums.
        name: Under which name.
        file: Of which file, or of which model's folder: of the files in it that a model is loaded from.

    Raises:
        ValueError: If the file cannot be read, or is not what it was when the run was begun.
    """
    try:
        own = _checksum(Path(file))
    except OSError as error:
        raise ValueError(f"cannot read {file}: {error.strerror}") from error
    if settings["programs"].setdefault(name, own) != own:
        raise ValueError(f"{file} has changed since the run was begun, and a resumed run needs it as it was")


def _checksum(path: Path) -> str:
    if not path.is_dir():
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    read = (file for file in path.rglob("*") if file.suffix in _OF_MODELS and file.name != "trainer.json")
    parts = (f"{file.relative_to(path)} {_checksum(file)}\n" for file in sorted(read) if file.is_file())
    return hashlib.sha256("".join(parts).encode()).hexdigest()


def _metrics(line: str) -> Metrics:
    try:
        row = json.loads(line)
    except RecursionError as error:
        raise ValueError("a line is nested too deeply") from error
    if not isinstance(row, dict) or not isinstance(row.get("step"), int):
        raise ValueError(f"expected an object with a step; got {line[:40]!r}")
    return row


def check_settings(settings: Mapping[str, Any], kinds: Mapping[str, Any], file: Path) -> None:
    """Refuses settings that are unknown, missing, or of another type than they should be.

    Args:
        settings: As they were read.
        kinds: Every name that belongs there, with its type; `Config`'s type hints serve.
        file: Where they were read, for the message.

    Raises:
        ValueError: Naming the first setting that is wrong.

    Example:
        >>> check_settings({"step": 3}, {"steps": int}, Path("config.json"))
        Traceback (most recent call last):
        ValueError: config.json: unknown setting 'step'; did you mean steps?
        >>> check_settings({"steps": "3"}, {"steps": int}, Path("config.json"))
        Traceback (most recent call last):
        ValueError: config.json: steps is '3', and should be int
    """
    for name in settings:
        if name not in kinds:
            close = difflib.get_close_matches(name, kinds, n=1)
            advice = f"did you mean {close[0]}?" if close else "take it out"
            raise ValueError(f"{file}: unknown setting {name!r}; {advice}")
    for name, kind in kinds.items():
        if name not in settings:
            raise ValueError(f"{file}: the setting {name} is missing; put it back, or start again with --overwrite")
        if not _is_a(settings[name], kind):
            shown = getattr(kind, "__name__", None) if isinstance(kind, type) else str(kind).replace("typing.", "")
            raise ValueError(f"{file}: {name} is {settings[name]!r}, and should be {shown}")


def _is_a(value: Any, kind: Any) -> bool:
    if get_origin(kind) in (Union, types.UnionType):
        return any(_is_a(value, option) for option in get_args(kind))
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if kind is float:
        kind = int | float
    return isinstance(value, kind) and not isinstance(value, bool)
