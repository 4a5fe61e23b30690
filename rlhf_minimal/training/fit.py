"""One loop for everything that learns from a fixed set of rows: pretraining, fine-tuning, a reward model.

Only the loss differs, so the loop is given a function from the number of a step to its loss. The learning rate rises to
its peak and then falls linearly to zero. Every step's rows come from (seed, step), so a resumed run repeats the numbers
of one that was never interrupted.
"""

import math
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from rlhf_minimal.models import is_out_of_memory
from rlhf_minimal.training import checkpoints
from rlhf_minimal.training.config import check_numbers
from rlhf_minimal.training.metrics import Metrics
from rlhf_minimal.training.optimizers import new_optimizer, optimizer_tensors, restore_optimizer

Row = TypeVar("Row")


@dataclass(frozen=True)
class FitConfig:
    """Settings of a supervised run.

    Args:
        steps: Optimiser steps.
        batch_size: Rows per step.
        lr: Peak learning rate of AdamW, 1e-3 to 4e-3 for the tiny models; 1e-5 is usual at a billion parameters.
        warm_up: Steps over which the learning rate rises to its peak; then it falls linearly to zero.
        weight_decay: Weight decay of AdamW.
        grad_clip: Largest norm of the gradient; a larger one is scaled down to it.
        seed: Seed of the rows that a task makes, of their order, and of new weights.

    Raises:
        ValueError: If a number is out of its range; the message names it.
    """

    steps: int = 600
    batch_size: int = 128
    lr: float = 3e-3
    warm_up: int = 50
    weight_decay: float = 0.0
    grad_clip: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_numbers(self, above_0="lr grad_clip", at_least_0="warm_up weight_decay", at_least_1="steps batch_size")


@dataclass
class Student:
    """All that changes while a model is fitted: what a checkpoint holds and a resumed run restores.

    Attributes:
        model: Trained in place.
        write: Writes the model's own files into a folder (`save_policy`, `RewardModel.save`).
        optimizer: The model's.
        step: Steps taken.
    """

    model: PreTrainedModel
    write: Callable[[Path], None]
    optimizer: torch.optim.Optimizer
    step: int = 0

    @classmethod
    def begin(cls, model: PreTrainedModel, write: Callable[[Path], None], config: FitConfig) -> "Student":
        """A student at step 0."""
        optimizer = new_optimizer(model.parameters(), config.lr, weight_decay=config.weight_decay)
        return cls(model, write, optimizer)

    def save(self, folder: Path, notes: dict[str, Any]) -> None:
        """Writes a checkpoint, whole or not at all.

        Args:
            folder: The checkpoint's folder; replaced if it exists.
            notes: Plain values to keep beside it.
        """

        def write(new: Path) -> None:
            self.write(new)
            tensors = optimizer_tensors(self.optimizer, "optimizer")
            checkpoints.save_trainer(new, tensors, {**notes, "step": self.step})

        checkpoints.write_folder(folder, write)

    def restore(self, folder: Path) -> None:
        """Puts back what `save` kept besides the model, which the caller has loaded already.

        Raises:
            ValueError: If it is missing, damaged, or of another model.
        """
        tensors, notes = checkpoints.load_trainer(folder)
        try:
            step = checkpoints.number(notes, "step", int, least=0)
            restore_optimizer(self.optimizer, tensors, "optimizer")
        except (RuntimeError, ValueError, KeyError) as error:
            if is_out_of_memory(error):
                raise
            reason = str(error).splitlines()[0]
            raise ValueError(f"the checkpoint in {folder} does not fit this model: {reason}") from error
        self.step = step


def fit(
    student: Student,
    config: FitConfig,
    loss: Callable[[int], Tensor],
    on_step: Callable[[Metrics], bool | None] = lambda metrics: None,
) -> list[Metrics]:
    """Steps until `config.steps` are done.

    The learning rate rises for `warm_up` steps and then falls to zero. With a constant one the result would depend on
    the noise of the last few steps.

    Args:
        student: Changed in place; a restored one goes on where it stopped.
        config: The numbers.
        loss: Takes the number of a step, from 1, and returns the scalar to minimise.
        on_step: Called with each step's metrics; training stops early if it returns False.

    Returns:
        The metrics of every step taken, in order.

    Raises:
        ValueError: If a loss or a gradient is not finite. The model is as it was before the step.
    """
    history: list[Metrics] = []
    while student.step < config.steps:
        began = time.perf_counter()
        step = student.step + 1
        student.optimizer.zero_grad()
        value = loss(step)
        value.backward()
        norm = torch.nn.utils.clip_grad_norm_(student.model.parameters(), config.grad_clip).item()
        if not (math.isfinite(value.item()) and math.isfinite(norm)):
            raise ValueError(
                f"step {step}: the loss is {value.item()} and its gradient's norm {norm}; lower --lr, or look for "
                "damaged weights in the start"
            )
        lr = config.lr * min(step / max(config.warm_up, 1), 1.0, (config.steps - step + 1) / config.steps)
        for group in student.optimizer.param_groups:
            group["lr"] = lr
        student.optimizer.step()
        student.step = step
        seconds = time.perf_counter() - began
        history.append({"step": step, "loss": value.item(), "grad_norm": norm, "lr": lr, "seconds": seconds})
        if on_step(history[-1]) is False:
            break
    return history


def rows_of_step(rows: Sequence[Row], step: int, batch_size: int, seed: int) -> list[Row]:
    """The rows that a step trains on: every row once in each pass, in an order that is new for each pass.

    Args:
        rows: All of them.
        step: The step's number, from 1.
        batch_size: Rows per step; may be more than there are.
        seed: Seed of the orders.

    Example:
        >>> first, second = (rows_of_step("abcdef", step, 3, seed=0) for step in (1, 2))
        >>> sorted(first + second)
        ['a', 'b', 'c', 'd', 'e', 'f']
    """
    chosen: list[Row] = []
    at = (step - 1) * batch_size
    while len(chosen) < batch_size:
        epoch, offset = divmod(at, len(rows))
        shuffle = torch.Generator().manual_seed(zlib.crc32(f"rows/{seed}/{epoch}".encode()))
        order = torch.randperm(len(rows), generator=shuffle)
        taken = order[offset : offset + batch_size - len(chosen)].tolist()
        chosen += [rows[i] for i in taken]
        at += len(taken)
    return chosen
