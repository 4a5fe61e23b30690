"""`memory`: the bytes that every model of a run holds."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from transformers import PreTrainedConfig

from rlhf_minimal.algorithms import get_algorithm
from rlhf_minimal.cli.python_file import load
from rlhf_minimal.cli.settings import add_flags, fields_of
from rlhf_minimal.cli.starts import ASSETS, DEFAULT_TASK, load_config
from rlhf_minimal.cli.train_flags import add_row_flags
from rlhf_minimal.lab.memory import Dtypes, in_units, memory_ledger, memory_table, most_at_once
from rlhf_minimal.models import context_length
from rlhf_minimal.objective import Algorithm


@dataclass(frozen=True)
class Counted:
    """Options of the command.

    Args:
        model: A model as train takes it, or a run; no weight is read.
        critic_start: Another model whose size the critic has, as with train.
        sequences: Completions in one forward-backward.
        sampled: Completions sampled at once.
        prompt_length: Tokens of a prompt.
        completion_length: Tokens of a completion.
        lora_rank: Rank of the low-rank matrices that are trained instead of the weights (LoRA).
        gradient_checkpointing: Whether layers are computed again in the backward, as with train.
        precision: Precision of the forward. With float32 and bfloat16, weights are float32, as in train; with mixed, as
            in other libraries, weights are bfloat16, and moments and a second copy of the weights are float32.
    """

    model: str | None = None
    critic_start: str | None = None
    sequences: int = 8
    sampled: int | None = None
    prompt_length: int | None = None
    completion_length: int | None = None
    lora_rank: int | None = None
    gradient_checkpointing: Literal["off", "on"] = "off"
    precision: Literal["float32", "bfloat16", "mixed"] = "float32"


LENGTH = 512  # of prompts and of completions
SHOWN_DEFAULTS = {
    "model": "the shipped start",
    "critic_start": "the policy",
    "sampled": "as --sequences",
} | dict.fromkeys(("prompt_length", "completion_length"), f"{LENGTH}, or half of the context")


def add_arguments(sub: argparse.ArgumentParser) -> None:
    """The command's flags."""
    add_row_flags(sub)
    add_flags(sub, fields_of(Counted, SHOWN_DEFAULTS), filled=True)
    learned = "Count a reward model as well: the one in this folder, or with the word policy one of the policy's size."
    sub.add_argument("--reward-model", metavar="FOLDER|policy", help=learned)


def run(args: argparse.Namespace) -> int:
    """Prints the bytes of every model, and the peak."""
    algorithm = load(args.row, Algorithm) if args.row else get_algorithm(args.algorithm)
    policy = _model_config(args.model or str(ASSETS / DEFAULT_TASK))
    reward_model = policy if args.reward_model == "policy" else args.reward_model and _model_config(args.reward_model)
    if args.critic_start and "values" not in algorithm.needs:
        raise ValueError("--critic-start is for an algorithm with a critic, such as ppo: leave it out")
    context = context_length(policy)
    lengths = {name: getattr(args, name) for name in ("prompt_length", "completion_length")}
    lengths = {name: min(LENGTH, context // 2) if value is None else value for name, value in lengths.items()}
    if sum(lengths.values()) > context:
        raise ValueError(f"prompt and completion are {sum(lengths.values())} tokens, this model's context is {context}")
    half = torch.bfloat16
    dtypes = {"float32": Dtypes(), "bfloat16": Dtypes(activations=half)}
    dtypes["mixed"] = Dtypes(half, half, torch.float32, half, master=torch.float32)
    rows = memory_ledger(
        algorithm,
        policy,
        critic=_model_config(args.critic_start) if args.critic_start else None,
        reward_model=reward_model,
        sequences=args.sequences,
        sampled=args.sampled,
        gradient_checkpointing=args.gradient_checkpointing == "on",
        lora_rank=args.lora_rank,
        dtypes=dtypes[args.precision],
        **lengths,
    )
    print(memory_table(rows))
    if rows[0].activations is not None:
        print(f"\nat once, at most: {in_units(most_at_once(rows))}")
    return 0


def _model_config(name: str) -> PreTrainedConfig:
    run = Path(name) / "checkpoint"
    return load_config(str(run) if run.is_dir() else name)
