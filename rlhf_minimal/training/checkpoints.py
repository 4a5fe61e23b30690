"""Checkpoints: an ordinary transformers folder, written whole or not at all.

    config.json  model.safetensors                         the policy; `AutoModelForCausalLM.from_pretrained` reads it
    tokenizer.json ...  vocabulary.json                    its vocabulary (see `models`)
    trainer.json  trainer.safetensors                      what `--resume` needs besides, absent in a shipped start

No pickle anywhere, and no code that a folder brings along: reading a checkpoint cannot run code.
"""

import errno
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from rlhf_minimal.model_files import backup_path, damaged, find_checkpoint, in_short

FORMAT = 2  # of run folders and of what `save_trainer` writes; raised whenever an older one can no longer be continued


def write_folder(folder: Path, write: Callable[[Path], None]) -> None:
    """Fills a temporary folder and renames it, so that a reader finds the old folder or the new one, never half of one.

    That holds wherever the process is killed: at every moment there is a whole folder under its own name or, between
    the two renames, under the spare one, where `find_checkpoint` looks, too. It also holds after a power failure: the
    files have reached the disk before the rename.

    Args:
        folder: Where the result is written; replaced if it exists.
        write: Writes the files into the folder it is given.

    Raises:
        ValueError: If the place cannot be written, or is full. What was there before stays.
    """
    new, old = folder.with_name(folder.name + ".new"), backup_path(folder)
    try:
        with clear_io_errors(folder):
            remove(new)
            new.mkdir(parents=True)
            write(new)
            for path in [*new.iterdir(), new]:
                flush(path)
            if folder.exists():
                remove(old)
                os.replace(folder, old)
            os.replace(new, folder)
            flush(folder.parent)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    remove(old)


def remove(path: Path) -> None:
    """Removes what has this name: a folder, or a file or a link that somebody has put there (not what it points to)."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


def write_file(path: Path, text: str) -> None:
    """Writes one text file, whole or not at all, as `write_folder`."""
    new = path.with_name(path.name + ".new")
    with clear_io_errors(path):
        try:
            new.write_text(text, encoding="utf-8")
            flush(new)
            os.replace(new, path)
        finally:
            new.unlink(missing_ok=True)


def flush(path: Path) -> None:
    """Waits until a file, or the list of files in a folder, has reached the disk."""
    if path.is_dir() and not hasattr(os, "O_DIRECTORY"):
        return  # Windows cannot open a folder, and does not need to
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def clear_io_errors(path: Path) -> Iterator[None]:
    """Names the place in an error of the system, which becomes a ValueError of one line.

    Raises:
        ValueError: If the place cannot be written; if it is full, the message says what to do.
    """
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise ValueError(_cannot_write(path, error)) from error


def _cannot_write(path: Path, error: Exception) -> str:
    reason = getattr(error, "strerror", None) or str(error).rpartition("I/O error: ")[2].partition(" (os")[0]
    # safetensors has an error of its own, which tells the system's number in its text only
    number = getattr(error, "errno", None) or int((re.search(r"os error (\d+)", str(error)) or [0, 0])[1])
    full = number in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC), errno.EFBIG)  # Windows has no quota
    return f"cannot write {path}: {reason}{'; make room, then go on' if full else ''}"


def save_trainer(folder: Path, tensors: dict[str, Tensor], notes: dict[str, Any]) -> None:
    """Writes what a resumed run needs besides the policy: named tensors and a few plain numbers."""
    notes = {**notes, "format": FORMAT}
    contiguous = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    safetensors.torch.save_file(contiguous, str(folder / "trainer.safetensors"))
    (folder / "trainer.json").write_text(json.dumps(notes, indent=2) + "\n", encoding="utf-8")


def load_trainer(folder: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Reads back what `save_trainer` wrote.

    Raises:
        ValueError: If it is missing or damaged, or was written by another version.
    """
    folder = find_checkpoint(folder)
    try:
        notes = json.loads((folder / "trainer.json").read_text(encoding="utf-8"))
        if not isinstance(notes, dict):
            raise ValueError("trainer.json holds no object")
        tensors = safetensors.torch.load_file(str(folder / "trainer.safetensors"))
        if whole := [f"{name} ({tensor.dtype})" for name, tensor in tensors.items() if not tensor.is_floating_point()]:
            raise ValueError(f"trainer.safetensors holds no floating numbers: {in_short(whole)}")
    except (OSError, ValueError, SafetensorError, RecursionError) as error:
        raise ValueError(damaged(folder, error)) from error
    check_format(notes, f"the checkpoint in {folder}")
    return tensors, notes


def check_format(notes: dict[str, Any], what: str) -> None:
    """Refuses what another version of this library wrote, and says what can be done with it.

    Args:
        notes: Names with their values, `format` among them.
        what: What was read, for the message.

    Raises:
        ValueError: If its format is not ours.

    Example:
        >>> check_format({"format": FORMAT}, "the run in runs/grpo")
        >>> check_format({}, "the run in runs/grpo")
        Traceback (most recent call last):
        ValueError: the run in runs/grpo was written by an older version of rlhf_minimal and cannot be continued by \
this one: start a new run from its policy with --start FOLDER, or install the version that config.json names
    """
    written = notes.get("format", 0)
    if isinstance(written, bool) or not isinstance(written, int):
        raise ValueError(f"{what} is damaged: its format is {written!r}, not a number")
    if written < FORMAT:
        raise ValueError(
            f"{what} was written by an older version of rlhf_minimal and cannot be continued by this one: start a new "
            "run from its policy with --start FOLDER, or install the version that config.json names"
        )
    if written > FORMAT:
        raise ValueError(
            f"{what} was written by a newer version of rlhf_minimal (format {written}, this one reads {FORMAT}): "
            "update rlhf_minimal"
        )


def number(notes: dict[str, Any], name: str, kind: type, *, least: int | float = -math.inf) -> Any:
    """One number of a checkpoint's notes.

    Raises:
        ValueError: If it is missing, of another kind, not finite, or below `least`.
    """
    value: Any = notes.get(name)
    right = isinstance(value, kind if kind is int else int | float) and not isinstance(value, bool)
    if not right or not math.isfinite(value) or value < least:
        raise ValueError(f"trainer.json names no {name}" if value is None else f"{name} in trainer.json is {value!r}")
    return kind(value)
