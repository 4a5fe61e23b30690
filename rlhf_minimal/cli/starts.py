"""The model that a command begins with, by its name, and the device."""

import argparse
import dataclasses
import shlex
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel

from rlhf_minimal.cli.python_file import is_program
from rlhf_minimal.cli.settings import Setting
from rlhf_minimal.model_files import SHORT_NAMES, find_checkpoint, one_line, place_of
from rlhf_minimal.models import TokenizerVocabulary, Vocabulary, load_pretrained, tiny_llama
from rlhf_minimal.tasks import Task
from rlhf_minimal.training import load_policy
from rlhf_minimal.training.run_folder import RunFolder
from rlhf_minimal.vocabulary import END, AnyVocabulary

ASSETS = Path(__file__).parent.parent / "assets"
DEFAULT_TASK = "addition"  # of `train`, and of `sample` and `evaluate` without a run
# Learning rates that a real model survives; the defaults of the configs are for tiny ones.
REAL_MODEL_LR, REAL_MODEL_LORA_LR = 1e-5, 1e-4


def add_model_flag(sub: Any, instead_of: str) -> None:
    """The flag that names a real model, for a command's grammar or a group of its flags."""
    names = ", ".join(SHORT_NAMES)
    sub.add_argument(
        "--model",
        metavar="NAME",
        help=f"A real language model instead of {instead_of}: a Hugging Face name, a folder, a .gguf file, or {names}.",
    )


def complete(args: argparse.Namespace) -> None:
    """Fills in what follows from other flags: `--model NAME` is the start hf:NAME, and a run as start has a task."""
    if args.model is not None:
        if args.start is not None:
            raise ValueError("--model and --start both name what training begins with: give one of them")
        args.start = f"hf:{args.model}"
    if args.start is not None and args.task is None and not args.resume:  # a resumed run keeps its own
        args.task = _task_of_run(args.start)


def with_rates(declared: list[Setting], args: argparse.Namespace) -> list[Setting]:
    """A command's settings, with learning rates that a real model survives if the start is one."""
    if args.start is None or not args.start.startswith("hf:"):
        return declared
    lr = REAL_MODEL_LR if getattr(args, "lora_rank", None) is None else REAL_MODEL_LORA_LR
    return [dataclasses.replace(s, default=lr) if s.name in ("lr", "value_lr") else s for s in declared]


def _task_of_run(start: str) -> str | None:
    """The task of a run folder; None for another start."""
    if not (Path(start) / "metrics.jsonl").exists():
        return None
    task = RunFolder(start).settings().get("task")
    if not isinstance(task, str) or is_program(task):  # which is run only where it is named
        raise ValueError(f"say with --task what is to be learnt: the run in {start} has {task}")
    return task


def shipped_start(task: Task) -> Path:
    """The folder of the start that is shipped for a task; there may be none."""
    return ASSETS / (task.start or task.name)


def check_start(name: str, task: Task, words: str) -> None:
    """Refuses the shipped start of a task that has none, before anything else is done.

    Args:
        name: The start.
        task: What is to be trained.
        words: What the command line calls the task.

    Raises:
        ValueError: With what to do: make a start, or train random weights on purpose.
    """
    if name != "shipped" or shipped_start(task).is_dir():
        return
    if not task.alphabet:
        raise _needs_real_model(task)
    make = "name one with --start FOLDER"
    if task.teacher or task.corpus:
        task_flag, out = shlex.quote(words), shlex.quote(f"runs/start-{task.start or task.name}")
        make = f"make one with `pretrain --task {task_flag} --out {out}` and give --start {out}"
    raise ValueError(
        f"no start is shipped for the task {task.name}, so training would begin with random weights: {make}, or give "
        "--start untrained if random weights are what you want"
    )


def load_start(
    name: str, task: Task, seed: int, chat: str = "auto"
) -> tuple[PreTrainedModel, Vocabulary | TokenizerVocabulary, str]:
    """The policy that training begins with, and how to describe it; a description can be loaded again.

    Args:
        name: "shipped", "untrained", hf:NAME, or a checkpoint or run folder.
        task: Decides which start is the shipped one, and the alphabet of an untrained one.
        seed: Of an untrained one's weights.
        chat: Whether a real model's prompts are chats: "auto", "on" or "off".
    """
    if name.startswith("hf:"):
        use = {"auto": None, "on": True, "off": False}[chat]
        return *load_pretrained(name.removeprefix("hf:"), chat=use), name
    if chat != "auto":
        raise ValueError("--chat goes with --model: a checkpoint keeps how its prompts are written")
    shipped = f"shipped ({task.name})"
    if name in ("shipped", shipped):
        return *load_policy(shipped_start(task)), shipped
    if name == "untrained":
        return *untrained(task, seed), "untrained"
    return *load_policy(name), str(find_checkpoint(name))


def untrained(task: Task, seed: int) -> tuple[PreTrainedModel, Vocabulary]:
    """A new model whose vocabulary is the task's alphabet."""
    if not task.alphabet:
        raise _needs_real_model(task)
    vocabulary = Vocabulary(task.alphabet)
    return tiny_llama(len(vocabulary), seed=seed, **task.sizes), vocabulary


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
        f"{task.name} is written in plain language, and this start knows single characters only: give a real model "
        "with --model NAME"
    )


def load_config(name: str) -> PreTrainedConfig:
    """The config of a model without its weights; from a hub, this loads a few hundred bytes.

    Args:
        name: As `load_pretrained` takes it.

    Raises:
        ValueError: If transformers cannot read it.
    """
    place, options, advice = place_of(name, {})
    with one_line(f"cannot read the config of the model {name!r}", advice):
        return AutoConfig.from_pretrained(place, trust_remote_code=False, **options)


def check_same_vocabulary(policy: AnyVocabulary, other: AnyVocabulary, what: str = "reward model") -> None:
    """Raises an error if two models have different tokens.

    Args:
        policy: The policy's vocabulary.
        other: The other model's.
        what: The name of the other model in the message.

    Raises:
        ValueError: If a token of one is missing in the other or has another id.

    Example:
        >>> from rlhf_minimal.models import character_tokenizer
        >>> check_same_vocabulary(Vocabulary("abc"), TokenizerVocabulary(character_tokenizer("abc")))
    """
    own, its = _ids(policy), _ids(other)
    if own == its:
        return
    different = sorted(token for token in own.keys() | its.keys() if own.get(token) != its.get(token))
    shown = ", ".join(map(repr, different[:5])) + (", ..." if len(different) > 5 else "")
    raise ValueError(
        f"the {what} has another vocabulary than the policy ({len(its)} tokens, not {len(own)}; they differ in "
        f"{shown}): train it from this policy or from its own start"
    )


def _ids(vocabulary: AnyVocabulary) -> dict[str, int]:
    if isinstance(vocabulary, TokenizerVocabulary):
        return dict(vocabulary.tokenizer.get_vocab())
    return {END: 0} | {character: i for i, character in enumerate(vocabulary.alphabet, start=1)}


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
