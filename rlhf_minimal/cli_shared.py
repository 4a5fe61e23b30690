"""What the commands share: starts, devices, and how a run is stopped."""

import argparse
import os
import signal
from pathlib import Path

import torch
from transformers import PreTrainedModel

from rlhf_minimal.models import TokenizerVocabulary, Vocabulary, load_pretrained, tiny_llama
from rlhf_minimal.models.folder import find_checkpoint
from rlhf_minimal.tasks import Task
from rlhf_minimal.training import load_policy

ASSETS = Path(__file__).parent / "assets"


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


def load_start(name: str, task: Task, seed: int) -> tuple[PreTrainedModel, Vocabulary | TokenizerVocabulary, str]:
    """The policy that training begins with, and how to describe it."""
    if name == "shipped" and (ASSETS / task.name).is_dir():
        return *load_policy(ASSETS / task.name), f"shipped ({task.name})"
    if name in ("shipped", "untrained"):
        return *untrained(task, seed), "untrained"
    if name.startswith("hf:"):
        return *load_pretrained(name.removeprefix("hf:")), name
    return *load_policy(name), str(find_checkpoint(name))


def untrained(task: Task, seed: int) -> tuple[PreTrainedModel, Vocabulary]:
    """A new model that speaks the task's alphabet."""
    vocabulary = Vocabulary(task.alphabet)
    return tiny_llama(len(vocabulary), seed=seed), vocabulary


def check_alphabet(vocabulary: Vocabulary | TokenizerVocabulary, task: Task) -> None:
    """Refuses a model that cannot write the task."""
    if isinstance(vocabulary, Vocabulary) and not set(task.alphabet) <= set(vocabulary.alphabet):
        raise ValueError(
            f"this checkpoint knows {vocabulary.alphabet!r}, but {task.name} is written in {task.alphabet!r}"
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


def at_least_1(args: argparse.Namespace, *names: str) -> None:
    """Refuses flags below 1."""
    for name in names:
        if getattr(args, name) < 1:
            flag = f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"
            raise ValueError(f"{flag} must be at least 1; got {getattr(args, name)}")
