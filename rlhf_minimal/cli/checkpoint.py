"""Loads a checkpoint and its task, for the commands `sample` and `evaluate`."""

import argparse
import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from transformers import PreTrainedModel

from rlhf_minimal.algorithms import ALGORITHMS
from rlhf_minimal.cli import starts
from rlhf_minimal.cli.console import printable
from rlhf_minimal.cli.settings import add_flags, fields_of, kinds_of
from rlhf_minimal.cli.starts import DEFAULT_TASK
from rlhf_minimal.cli.train_flags import SETTINGS
from rlhf_minimal.cli.user_code import find_task
from rlhf_minimal.config import Config
from rlhf_minimal.models import TokenizerVocabulary, Vocabulary
from rlhf_minimal.train import Recipe
from rlhf_minimal.training.run_folder import RunFolder, check_settings


@dataclass(frozen=True)
class CheckpointOptions:
    """Options of both commands: how the model is asked, and which problems.

    Args:
        chat: Whether prompts are written with the model's chat template; auto, if it has one.
        system: System message before every prompt.
        task: What to ask: the name of a task, or FILE.py:NAME for a task of your own.
        device: Where to compute: cpu, cuda or mps.
        seed: Seed of the problems and of the samples.
    """

    chat: Literal["auto", "on", "off"] = "auto"
    system: str | None = None
    task: str | None = None
    device: str = "cpu"
    seed: int = 0


# The defaults of these options, as the help describes them.
DEFAULTS = {"system": "the run's own, else the task's", "task": f"the run's own, else {DEFAULT_TASK}"}
READ = ("task", "system", "max_new_tokens", "precision")  # the settings of a run that its completions depend on


def add_arguments(sub: argparse.ArgumentParser) -> None:
    """The flags of both commands."""
    sub.add_argument(
        "checkpoint", nargs="?", help="A run or checkpoint folder, or 'start' (default: the newest run under runs/)."
    )
    starts.add_model_flag(sub, "a checkpoint")
    add_flags(sub, fields_of(CheckpointOptions, DEFAULTS), filled=True)


def load(args: argparse.Namespace) -> tuple[PreTrainedModel, Vocabulary | TokenizerVocabulary, Recipe]:
    """Model, vocabulary and a recipe with task and budget: those of the run, unless the flags name others."""
    device, path = starts.find_device(args.device), args.checkpoint
    if path is not None and args.model is not None:
        raise ValueError("--model takes the place of a checkpoint: give one of them")
    if path is None:
        path = _newest_run() if args.model is None else f"hf:{args.model}"
    saved = _saved_settings(path)
    settings = {"task": args.task or saved.get("task", DEFAULT_TASK), "programs": {}}
    task = find_task(settings, args.task)
    system = saved.get("system") if args.system is None else args.system
    if system is not None:
        task = dataclasses.replace(task, instruction=system)
    path = str(starts.shipped_start(task)) if path == "start" else path
    policy, vocabulary, _ = starts.load_start(path, task, 0, args.chat)
    starts.check_alphabet(vocabulary, task)
    policy.to(device)  # type: ignore[arg-type]
    same = saved if settings["task"] == saved.get("task") else {}
    config = Config(**{name: value for name, value in same.items() if name in ("max_new_tokens", "precision")})
    # Any row of the table: only task, budget and precision are used to sample and to evaluate.
    return policy, vocabulary, Recipe(ALGORITHMS["reinforce"], task, config)


def _newest_run() -> str:
    runs = sorted(Path("runs").glob("*/metrics.jsonl"), key=lambda run: run.stat().st_mtime, reverse=True)
    for path in (run.parent for run in runs):
        if RunFolder(path).settings().get("command") != "reward":  # a reward model writes nothing
            print(f"newest run: {printable(str(path))}", file=sys.stderr)
            return str(path)
    raise ValueError("no run of a policy under runs/: train first, or name a checkpoint folder, or 'start'")


def _saved_settings(path: str) -> dict[str, Any]:
    """The settings of a run that its completions depend on; empty if the path is not a run folder."""
    if not (Path(path) / "metrics.jsonl").exists():
        return {}
    own = RunFolder(path).settings()
    saved, kinds = {name: own[name] for name in READ if name in own}, kinds_of(SETTINGS)
    check_settings(saved, {name: kinds[name] for name in saved}, Path(path) / "config.json")
    return saved
