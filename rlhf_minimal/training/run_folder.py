"""A run on disk: what was asked for, what happened at every step, and the latest checkpoint.

config.json  metrics.jsonl  checkpoint/        and, at the end, evaluation.json, report.txt, learning-curve.png
"""

import json
import shutil
from pathlib import Path
from typing import Any

from rlhf_minimal.training.checkpoints import write_file
from rlhf_minimal.training.metrics import Metrics

_FILES = ("config.json", "metrics.jsonl", "evaluation.json", "report.txt", "learning-curve.png")
_ROWS = ("rows.jsonl", "held-out.jsonl")  # of the supervised commands


class RunFolder:
    """Paths and files of one run.

    Args:
        path: The run's folder.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.checkpoint = self.path / "checkpoint"
        self.metrics = self.path / "metrics.jsonl"
        self.picture = self.path / "learning-curve.png"
        self.evaluation = self.path / "evaluation.json"
        self.report = self.path / "report.txt"

    def check_free(self, *, overwrite: bool = False) -> None:
        """Refuses a folder that holds something.

        Raises:
            ValueError: If it holds a run and `overwrite` is not set, or files that are no run's at all.
        """
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"{self.path} is a file; --out names a folder")
        holds_run = (self.path / "config.json").exists() and self.metrics.exists()
        if holds_run and not overwrite:
            raise ValueError(f"{self.path} already holds a run: --resume continues it, --overwrite replaces it")
        if not holds_run and self.path.is_dir() and any(self.path.iterdir()):
            raise ValueError(f"{self.path} holds files that are no run of ours; name another folder with --out")

    def create(self, settings: dict[str, Any], *, overwrite: bool = False) -> None:
        """Makes the folder and writes `config.json`.

        Raises:
            ValueError: As `check_free`, or if the place cannot be written.
        """
        self.check_free(overwrite=overwrite)
        try:
            if overwrite:
                shutil.rmtree(self.checkpoint, ignore_errors=True)
                for name in _FILES + _ROWS:
                    (self.path / name).unlink(missing_ok=True)
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"cannot write the run folder {self.path}: {error.strerror or error}") from error
        self.write_settings(settings)
        write_file(self.metrics, "")

    def settings(self) -> dict[str, Any]:
        """What `config.json` says.

        Raises:
            ValueError: If there is no run here, or the file is damaged.
        """
        try:
            settings = json.loads((self.path / "config.json").read_text())
        except OSError as error:
            raise ValueError(f"no run in {self.path}: it holds no config.json") from error
        except ValueError as error:
            raise ValueError(f"{self.path / 'config.json'} is damaged: {error}") from error
        if not isinstance(settings, dict):
            raise ValueError(f"{self.path / 'config.json'} is damaged: expected an object")
        return settings

    def write_settings(self, settings: dict[str, Any]) -> None:
        """Writes `config.json`."""
        write_file(self.path / "config.json", json.dumps(settings, indent=2) + "\n")

    def append(self, metrics: Metrics) -> None:
        """One more line of `metrics.jsonl`."""
        try:
            with self.metrics.open("a") as file:
                file.write(json.dumps(metrics) + "\n")
        except OSError as error:
            raise ValueError(f"cannot write {self.metrics}: {error.strerror or error}") from error

    def history(self, up_to: int | None = None) -> list[Metrics]:
        """The steps written so far; steps after `up_to` are left out.

        Raises:
            ValueError: If the file is missing, or damaged before its last line.
        """
        try:
            lines = self.metrics.read_text().splitlines()
            rows = [json.loads(line) for line in lines[:-1]]
        except (OSError, ValueError) as error:
            raise ValueError(f"cannot read {self.metrics}: {error}") from error
        try:
            rows += [json.loads(line) for line in lines[-1:]]
        except ValueError:
            pass  # a process killed while writing leaves half a last line; its step is simply done again
        return [row for row in rows if up_to is None or row["step"] <= up_to]

    def rewind(self, step: int) -> None:
        """Drops the lines of steps that the checkpoint does not know: a resumed run writes them again."""
        write_file(self.metrics, "".join(json.dumps(row) + "\n" for row in self.history(step)))
