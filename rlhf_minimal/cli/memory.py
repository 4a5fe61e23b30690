"""`memory`: the bytes that every model of a run holds."""

import argparse
from pathlib import Path

import torch
from transformers import PreTrainedConfig

from rlhf_minimal.algorithms import get_algorithm
from rlhf_minimal.cli.programs import load
from rlhf_minimal.cli.recipes import add_row_flags
from rlhf_minimal.cli.starts import ASSETS, DEFAULT_TASK
from rlhf_minimal.extras.memory import Dtypes, in_units, memory_ledger, memory_table, most_at_once
from rlhf_minimal.models import load_config
from rlhf_minimal.objective import Algorithm

ABOUT = "Count the bytes that every model of a run holds."
LENGTH = 512  # of prompts and of completions, unless half of the context is less


def add_arguments(sub: argparse.ArgumentParser) -> None:
    """The command's flags."""
    add_row_flags(sub)
    sub.add_argument(
        "--model",
        help="A model as train has it, or a run. No weight is read (default: the shipped start).",
    )
    sub.add_argument(
        "--reward-model",
        nargs="?",
        const="",
        metavar="FOLDER",
        help="The reward is learned: by this model, or without a name by one like the policy.",
    )
    sub.add_argument(
        "--sequences", type=int, default=8, help="Completions in one forward-backward (default %(default)s)."
    )
    sub.add_argument("--sampled", type=int, help="Completions sampled at once (default: as --sequences).")
    for what in ("prompt", "completion"):
        sub.add_argument(
            f"--{what}-length", type=int, help=f"Tokens of a {what} (default {LENGTH}, or half of the context)."
        )
    sub.add_argument("--lora-rank", type=int, help="Corrections of this rank are trained beside frozen weights.")
    sub.add_argument(
        "--gradient-checkpointing",
        choices=["on", "off"],
        default="off",
        help="Whether layers are computed again in the backward, as train has it (default %(default)s).",
    )
    precisions = sub.add_mutually_exclusive_group()
    precisions.add_argument(
        "--precision",
        choices=["float32", "bfloat16"],
        default="float32",
        help="Precision of the forward, as train has it: weights are float32 (default %(default)s).",
    )
    precisions.add_argument(
        "--mixed",
        action="store_true",
        help="Precision as other libraries have it: bfloat16 weights, with moments and a master copy in float32.",
    )


def run(args: argparse.Namespace) -> int:
    """Prints the ledger, and the bytes of the fullest moment."""
    algorithm = load(args.row, Algorithm) if args.row else get_algorithm(args.algorithm)
    policy = _model_config(args.model or str(ASSETS / DEFAULT_TASK))
    reward_model = policy if args.reward_model == "" else args.reward_model and _model_config(args.reward_model)
    context = policy.max_position_embeddings
    lengths = {name: getattr(args, name) for name in ("prompt_length", "completion_length")}
    lengths = {name: min(LENGTH, context // 2) if value is None else value for name, value in lengths.items()}
    if sum(lengths.values()) > context:
        raise ValueError(f"prompt and completion are {sum(lengths.values())} tokens, this model's context is {context}")
    half = torch.bfloat16
    dtypes = Dtypes(activations=half) if args.precision == "bfloat16" else Dtypes()
    if args.mixed:
        dtypes = Dtypes(half, half, torch.float32, half, master=torch.float32)
    rows = memory_ledger(
        algorithm,
        policy,
        reward_model=reward_model,
        sequences=args.sequences,
        sampled=args.sampled,
        gradient_checkpointing=args.gradient_checkpointing == "on",
        lora_rank=args.lora_rank,
        dtypes=dtypes,
        **lengths,
    )
    print(memory_table(rows))
    if rows[0].activations is not None:
        print(f"\nat once, at most: {in_units(most_at_once(rows))}")
    return 0


def _model_config(name: str) -> PreTrainedConfig:
    run = Path(name) / "checkpoint"
    return load_config(str(run) if run.is_dir() else name)
