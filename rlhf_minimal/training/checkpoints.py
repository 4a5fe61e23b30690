"""Checkpoints: an ordinary transformers folder, written whole or not at all.

    config.json  model.safetensors                         the policy; `AutoModelForCausalLM.from_pretrained` reads it
    tokenizer.json ...  vocabulary.json                    its vocabulary (see `models.folder`)
    trainer.json  trainer.safetensors                      what `--resume` needs besides, absent in a shipped start

No pickle anywhere: reading a checkpoint cannot run code.
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from rlhf_minimal.models import TokenizerVocabulary, Vocabulary
from rlhf_minimal.models.folder import damaged, find_checkpoint, load_vocabulary, save_vocabulary, spare


def write_folder(folder: Path, write: Callable[[Path], None]) -> None:
    """Fills a folder next door and swaps it in, so that a reader meets the old one or the new one, never half of one.

    Args:
        folder: Where the result shall be; replaced if it exists.
        write: Writes the files into the folder it is given.

    Raises:
        ValueError: If the place cannot be written.
    """
    new, old = folder.with_name(folder.name + ".new"), spare(folder)
    try:
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        write(new)
        if folder.exists():
            shutil.rmtree(old, ignore_errors=True)
            os.replace(folder, old)
        os.replace(new, folder)
    except OSError as error:
        raise ValueError(f"cannot write {folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)


def write_file(path: Path, text: str) -> None:
    """The same promise for one text file."""
    new = path.with_name(path.name + ".new")
    try:
        new.write_text(text)
        os.replace(new, path)
    except OSError as error:
        raise ValueError(f"cannot write {path}: {error.strerror or error}") from error


def save_policy(folder: Path, model: PreTrainedModel, vocabulary: Vocabulary | TokenizerVocabulary) -> None:
    """Writes a policy's three files into an existing folder (see `write_folder`)."""
    model.config.save_pretrained(folder)
    safetensors.torch.save_model(model, str(folder / "model.safetensors"), metadata={"format": "pt"})
    save_vocabulary(folder, vocabulary)


def load_policy(folder: str | Path) -> tuple[PreTrainedModel, Vocabulary | TokenizerVocabulary]:
    """Reads a policy back, in float32 on the CPU.

    Args:
        folder: A checkpoint folder, or a run folder that holds one under `checkpoint/`.

    Raises:
        ValueError: If it is missing or damaged: one line that says which file and why.
    """
    folder = find_checkpoint(folder)
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        if any("ForSequenceClassification" in name for name in config.architectures or ()):
            raise ValueError("it holds a reward model, and a policy is needed")
        model = AutoModelForCausalLM.from_config(config)
        safetensors.torch.load_model(model, str(folder / "model.safetensors"))
        vocabulary = load_vocabulary(folder)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise ValueError(damaged(folder, error)) from error
    if isinstance(vocabulary, Vocabulary) and len(vocabulary) != model.config.vocab_size:
        raise ValueError(damaged(folder, "vocabulary.json does not belong to this model: their sizes differ"))
    return model.eval(), vocabulary


def save_trainer(folder: Path, tensors: dict[str, Tensor], notes: dict[str, Any]) -> None:
    """Writes what a resumed run needs besides the policy: named tensors and a few plain numbers."""
    contiguous = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    safetensors.torch.save_file(contiguous, str(folder / "trainer.safetensors"))
    (folder / "trainer.json").write_text(json.dumps(notes, indent=2) + "\n")


def load_trainer(folder: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Reads back what `save_trainer` wrote.

    Raises:
        ValueError: If it is missing or damaged.
    """
    folder = find_checkpoint(folder)
    try:
        notes = json.loads((folder / "trainer.json").read_text())
        return safetensors.torch.load_file(str(folder / "trainer.safetensors")), notes
    except (OSError, ValueError, SafetensorError) as error:
        raise ValueError(damaged(folder, error)) from error


def optimizer_tensors(optimizer: torch.optim.Optimizer, prefix: str) -> dict[str, Tensor]:
    """An optimiser's moments as named tensors: `<prefix>.<parameter number>.<moment>`."""
    state = optimizer.state_dict()["state"]
    return {f"{prefix}.{i}.{name}": value for i, moments in state.items() for name, value in moments.items()}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor], prefix: str) -> None:
    """Puts them back; learning rates and the like come from the config, not from the file."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        if key.startswith(prefix + "."):
            number, name = key[len(prefix) + 1 :].split(".", 1)
            state.setdefault(int(number), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
