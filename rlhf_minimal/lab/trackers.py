"""Metrics for TensorBoard, Weights & Biases or trackio, through accelerate. `metrics.jsonl` is written in any case."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from rlhf_minimal.metrics import Metrics

TRACKERS = ("tensorboard", "wandb", "trackio")


class Trackers:
    """Sends the metrics of every step to the trackers.

    Args:
        names: At least one of `TRACKERS`.
        folder: The run's folder: its name is the run's name, and TensorBoard's files go there.
        settings: The run's settings.
        device: The run's device, which accelerate is given once for all processes.

    Raises:
        ValueError: If accelerate, or the package of one of them, is not installed; or a name is not in `TRACKERS`.
    """

    def __init__(self, names: Sequence[str], folder: Path, settings: Mapping[str, Any], device: torch.device):
        try:
            from accelerate import Accelerator
            from accelerate.tracking import get_available_trackers
        except ImportError as error:
            raise ValueError("trackers are reached through the package accelerate: pip install accelerate") from error
        installed = [str(tracker) for tracker in get_available_trackers()]
        for name in names:
            if name not in TRACKERS:
                raise ValueError(f"no tracker {name!r}; there are {', '.join(TRACKERS)}")
            if name not in installed:  # accelerate itself would skip it silently
                raise ValueError(f"the tracker {name} needs its package: pip install {name}")
        self.accelerator = Accelerator(cpu=device.type == "cpu", log_with=list(names), project_dir=str(folder))
        self.names, self.folder, self.settings = tuple(names), folder, dict(settings)

    def begin(self) -> None:
        """Opens the trackers; the run's folder has to exist."""
        plain = {k: v if isinstance(v, bool | int | float | str) else str(v) for k, v in self.settings.items()}
        own = {"wandb": {"name": self.folder.name}, "trackio": {"name": self.folder.name}}
        self.accelerator.init_trackers("rlhf-minimal", plain, {name: own[name] for name in self.names if name in own})

    def log(self, metrics: Metrics) -> None:
        """One step's metrics, under its number."""
        values = {name: value for name, value in metrics.items() if name != "step"}
        self.accelerator.log(values, step=int(metrics["step"]))

    def end(self) -> None:
        """Closes the trackers, so that everything is sent."""
        for tracker in self.accelerator.trackers:  # `end_training` would also end the process group
            tracker.finish()
