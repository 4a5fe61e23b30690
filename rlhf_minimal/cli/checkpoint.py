"""What `sample` and `evaluate` share: loading the model and the task, and showing a verdict."""

import argparse
import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from transformers import PreTrainedModel

from rlhf_minimal.algorithms import ALGORITHMS
from rlhf_minimal.cli import starts
from rlhf_minimal.cli.programs import find_task
from rlhf_minimal.cli.settings import add_flags, fields_of
from rlhf_minimal.cli.starts import ASSETS, DEFAULT_TASK
from rlhf_minimal.models import TokenizerVocabulary, Vocabulary
from rlhf_minimal.tasks import Task
from rlhf_minimal.training import Config, Recipe
from rlhf_minimal.training.run_folder import RunFolder, check_settings


@dataclass(frozen=True)
class Asking:
    """Options of both commands: the model and the problems.

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


SAID = {"system": "the run's own, else the task's", "task": f"the run's own, else {DEFAULT_TASK}"}
# The settings of a run that its completions depend on.
KEPT = {"task": str, "system": str | None, "max_new_tokens": int | None, "precision": Literal["float32", "bfloat16"]}


def add_arguments(sub: argparse.ArgumentParser) -> None:
    """The flags of both commands."""
    sub.add_argument(
        "checkpoint", nargs="?", help="A run or checkpoint folder, or 'start' (default: the newest run under runs/)."
    )
    starts.add_model_flag(sub, "a checkpoint")
    add_flags(sub, fields_of(Asking, SAID), filled=True)


def load(args: argparse.Namespace) -> tuple[PreTrainedModel, Vocabulary | TokenizerVocabulary, Recipe]:
    """Model, task and budget: those of a run, unless others are named."""
    device, path = starts.find_device(args.device), args.checkpoint
    if path is not None and args.model is not None:
        raise ValueError("--model takes the place of a checkpoint: give one of them")
    if path is None:
        path = _newest_run() if args.model is None else f"hf:{args.model}"
    kept = _kept(path)
    settings = {"task": args.task or kept.get("task", DEFAULT_TASK), "programs": {}}
    task = find_task(settings, args.task)
    system = kept.get("system") if args.system is None else args.system
    if system is not None:
        task = dataclasses.replace(task, instruction=system)
    policy, vocabulary, _ = starts.load_start(str(ASSETS / task.name) if path == "start" else path, task, 0, args.chat)
    starts.check_alphabet(vocabulary, task)
    policy.to(device)  # type: ignore[arg-type]
    same = kept if settings["task"] == kept.get("task") else {}
    config = Config(**{name: value for name, value in same.items() if name in ("max_new_tokens", "precision")})
    # Any row of the table: only task, budget and precision are used to sample and to evaluate.
    return policy, vocabulary, Recipe(ALGORITHMS["reinforce"], task, config)


def _newest_run() -> str:
    runs = list(Path("runs").glob("*/metrics.jsonl"))
    if not runs:
        raise ValueError("no run under runs/: train first, or name a checkpoint folder, or 'start'")
    path = str(max(runs, key=lambda run: run.stat().st_mtime).parent)
    print(f"newest run: {path}", file=sys.stderr)
    return path


def _kept(path: str) -> dict[str, Any]:
    """The settings of a run that its completions depend on; empty if the path is not a run folder."""
    if not (Path(path) / "metrics.jsonl").exists():
        return {}
    own = RunFolder(path).settings()
    kept = {name: own[name] for name in KEPT if name in own}
    check_settings(kept, {name: KEPT[name] for name in kept}, Path(path) / "config.json")
    return kept


def mark(task: Task, score: float) -> str:
    """The verdict of the task's verifier on one completion, in words."""
    if task.score_range is not None:
        return f"({score:g})"
    return "right" if score == 1 else "wrong"


def measure_of(task: Task) -> str:
    """The name of the measure that an evaluation of the task reports."""
    if task.score_range is None:
        return "accuracy"
    return "score ({:g} to {:g})".format(*task.score_range)
