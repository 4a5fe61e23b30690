"""What the commands `pretrain`, `sft`, `reward` and `prefer` have in common, as functions around `fit`.

    rows (a file's, or the task's own) -> checked -> run folder -> fit -> measured on rows held out

A command reads its flags (`plan_of`), loads its model, makes or reads its rows (`rows_of`) and trains (`train`). The
rows are copied into the run folder, and a resumed run reads the copy, so it does not matter if the original file has
changed.
"""

import argparse
import dataclasses
import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from matplotlib.axes import Axes
from torch import Tensor
from transformers import PreTrainedModel

from rlhf_minimal.cli import starts, user_code
from rlhf_minimal.cli.console import at_least_1, printable
from rlhf_minimal.cli.journal import Journal, check_writable
from rlhf_minimal.cli.report import write_report
from rlhf_minimal.cli.settings import Setting, add_flags, add_run_flags, check_read, fields_of, settings_of_run
from rlhf_minimal.fit import FitConfig, fit, optimizer_of, teacher_completions
from rlhf_minimal.lab import plot_style
from rlhf_minimal.lab.questions import same_question
from rlhf_minimal.lab.rows import hold_out, read_rows, write_rows
from rlhf_minimal.lab.sampled_rows import write_completions
from rlhf_minimal.metrics import Metrics
from rlhf_minimal.model_files import is_out_of_memory
from rlhf_minimal.models import AnyVocabulary, context_length
from rlhf_minimal.optimizer import optimizer_tensors, restore_optimizer
from rlhf_minimal.tasks import TASK_NAMES, CompletionRow, Task, verify_all
from rlhf_minimal.tasks.base import Split
from rlhf_minimal.training import checkpoints
from rlhf_minimal.training.checkpoints import clear_io_errors, flush
from rlhf_minimal.training.run_folder import RunFolder, check_same

Rows = Sequence[Any]  # all of one type: TextRow, CompletionRow, PairRow, StepRow, or what the loss takes in their place
Measured = tuple[dict[str, Any], str]  # how good a model is: as plain values, and as text


@dataclass(frozen=True)
class FitOptions:
    """Options of the four commands besides the numbers of `FitConfig`. The defaults suit the tiny model.

    Args:
        task: Where rows come from: the name of a task, or FILE.py:NAME for a task of your own.
        device: Where to compute: cpu, cuda or mps.
        start: The model to begin with: a checkpoint or run folder, 'untrained', 'shipped', or hf:NAME.
        data: A file of rows, as JSON lines.
        rows: How many rows the task makes, where no file is given.
        held_out: How many rows are kept apart for measuring.
        save_every: Steps between checkpoints and measurements.
    """

    task: str = "reviews"
    device: str = "cpu"
    start: str = "shipped"
    data: str | None = None
    rows: int = 10_000
    held_out: int = 1000
    save_every: int = 100


def settings_for(columns: str, **defaults: Any) -> list[Setting]:
    """The settings that the four commands have in common; `columns` are those of a row of `--data`."""
    task, lr = defaults.get("task", FitOptions.task), defaults.get("lr", FitConfig.lr)
    defaults_in_words = {
        "task": f"that of the run in --start, else {task}; there are {TASK_NAMES}",
        "data": f"the task's own rows; a file's have {columns}",
        "lr": f"{lr:g}; {starts.REAL_MODEL_LR:g} for a real model",
    }
    return [
        *fields_of(FitOptions, defaults_in_words, **defaults),
        *fields_of(FitConfig, defaults_in_words, **{"batch_size": 64, **defaults}),
        Setting("started_from", str | None, None),
    ]


@dataclass
class Plan:
    """What was asked for, before anything is loaded.

    Attributes:
        command: The command's name.
        folder: The run's.
        settings: All of them, as `config.json` keeps them.
        config: The numbers of `fit`.
        task: Where rows come from if no file is given.
        device: Where to compute.
        resumed: Whether training continues from the folder's checkpoint instead of beginning with the start.
        overwrite: Whether a run in the folder is replaced.
        words: The flags that repeat the command.
    """

    command: str
    folder: RunFolder
    settings: dict[str, Any]
    config: FitConfig
    task: Task
    device: torch.device
    resumed: bool
    overwrite: bool
    words: str

    @property
    def origin(self) -> str:
        """The model to load: the checkpoint of a resumed run, else the start."""
        return str(self.folder.checkpoint) if self.resumed else str(self.settings["start"])


def add_fit_flags(sub: argparse.ArgumentParser, settings: Sequence[Setting], *, out: str | None = None) -> None:
    """The flags of one of the commands."""
    starts.add_model_flag(sub, "--start")
    add_run_flags(sub, **({} if out is None else {"out": out}))
    add_flags(sub, settings)


def plan_of(
    args: argparse.Namespace,
    command: str,
    declared: Sequence[Setting],
    *,
    may_change: tuple[str, ...] = ("device",),
    goes_with: Mapping[str, tuple[str, Any]] = MappingProxyType({}),
    missing: Callable[[Task, dict[str, Any]], str | None] = lambda task, settings: None,
    compares: bool = False,
) -> Plan:
    """Reads and checks all settings before anything is loaded or written; then takes the run folder.

    Args:
        args: The command's flags.
        command: Its name.
        declared: Its settings, with the defaults that they have beside these flags.
        may_change: Settings that a resumed run may be given anew.
        goes_with: Settings that need another one (see `check_read`).
        missing: What the task lacks to make rows of its own, in words for an error message; None if nothing.
        compares: Whether rows that the task makes are samples of the start, one better than another.

    Raises:
        ValueError: If the settings do not fit each other or the folder; says what to do.
    """
    starts.complete(args)
    folder, settings, given = settings_of_run(
        args, starts.with_rates(list(declared), args), command, command, may_change
    )
    at_least_1(settings, "rows", "held_out", "save_every")
    check_read(settings, given, goes_with)
    if settings["data"] is not None and "rows" in given:
        raise ValueError(
            "--rows says how many rows the task makes, and a file in --data is read whole: leave --rows out"
        )
    task = user_code.find_task(settings, args.task)
    lacks = missing(task, settings)
    if settings["data"] is None and lacks:
        raise ValueError(f"the task {task.name!r} has no {lacks}; give a file of rows with --data")
    if settings["data"] is None and compares and settings["start"] == "untrained":
        raise ValueError(
            "the samples of an untrained policy are noise, and teach nothing when compared: give a fine-tuned one "
            "with --start"
        )
    if not args.resume:
        starts.check_start(settings["start"], task, settings["task"])
    config = FitConfig(**{field.name: settings[field.name] for field in dataclasses.fields(FitConfig)})
    device = starts.find_device(settings["device"])
    if args.resume:
        folder.hold()
    else:
        folder.check_free(overwrite=args.overwrite)
        check_writable(folder.path)
    return Plan(command, folder, settings, config, task, device, args.resume, args.overwrite, user_code.flags(args))


# --- rows, made or read, and kept ---


def rows_of(
    plan: Plan,
    model: PreTrainedModel,
    vocabulary: AnyVocabulary,
    kind: type,
    make: Callable[[Split, int, int], Rows],
    *,
    fresh: bool = False,
) -> tuple[Rows, Rows]:
    """Rows to train on and rows to measure on, all of them such that the model can read them.

    Args:
        plan: The run; a resumed one reads the rows that it has kept.
        model: Its context is the limit of a row's length.
        vocabulary: The model's.
        kind: What a row is (see `lab.rows`).
        make: Rows of the task itself, from split, number and seed; called where no file is given.
        fresh: Whether every step makes rows of its own, so that only those to measure on are made here.
    """
    limit, settings = context_length(model), plan.settings

    def checked(source: Any) -> Rows:
        return read_rows(source, kind, vocabulary, max_length=limit)

    def made(split: Split, n: int) -> Rows:
        return checked(map(vars, make(split, n, settings["seed"])))

    if plan.resumed:
        files = [None if fresh else plan.folder.path / "rows.jsonl", plan.folder.path / "held-out.jsonl"]
        for file in files:
            if file is not None:
                check_same(settings, file.name, file)  # nobody has changed it since
        train, held_out = ([] if file is None else checked(file) for file in files)
        return train, held_out
    if settings["data"] is None:
        return [] if fresh else made("train", settings["rows"]), made("held_out", settings["held_out"])
    rows = checked(settings["data"])
    if longer := sum(row.turns_before > 0 for row in rows):
        print(
            f"{longer} of {len(rows)} rows are conversations with earlier turns of the assistant, which are read and "
            "not learnt; give a row for each turn to learn it"
        )
    known = [problem.prompt for problem in plan.task.listed if plan.task.is_held_out(problem.prompt)]

    def identity(question: str) -> str:  # not in a toy task's letters: as a file of questions divides
        foreign = plan.task.alphabet and not {*question} <= {*plan.task.alphabet}
        return same_question(question) if foreign else plan.task.identity(question)

    train, held_out = hold_out(rows, settings["held_out"], identity, known)
    if unused := len(rows) - len(train) - len(held_out):
        print(
            f"{unused} of {len(rows)} rows are not used: they stand twice, --held-out has enough of them, or they hold "
            "both a question that is held out and one that is trained on"
        )
    return train, held_out


def _keep_rows(plan: Plan, rows: tuple[Rows, Rows]) -> None:
    """Writes rows to train on and rows to measure on into the run folder, and notes their checksums."""
    for name, part in zip(("rows.jsonl", "held-out.jsonl"), rows, strict=True):
        if part:
            file = plan.folder.path / name
            with clear_io_errors(file):
                write_rows(file, part)
                flush(file)
            check_same(plan.settings, name, file)


def demonstrations(task: Task, vocabulary: AnyVocabulary, split: Split, n: int, seed: int) -> list[CompletionRow]:
    """Prompts of a task, as the model will be asked, with completions of its teacher."""
    problems = task.problems(split, n, seed=f"sft/{seed}")
    return teacher_completions(task, vocabulary, problems, random.Random(f"sft/{split}/{seed}"))


# --- training ---


def train(
    plan: Plan,
    model: PreTrainedModel,
    write: Callable[[Path], None],
    described: str,
    kept: tuple[Rows, Rows],
    loss: Callable[[Rows], Tensor | tuple[Tensor, Metrics]],
    measure: Callable[[Rows], Measured],
    *,
    rows: Rows | Callable[[int], Rows] | None = None,
    held_out: Rows | None = None,
    watched: Sequence[str] = ("loss",),
    before: Callable[[], None] = lambda: None,
    finish: Callable[[], Measured] | None = None,
) -> int:
    """`fit` in a run folder, from its first file to its report.

    Args:
        plan: The run.
        model: What is trained, on its device.
        write: Writes the model's files into a folder.
        described: What training begins with, in words.
        kept: Rows to train on and rows to measure on, which the folder keeps.
        loss: Of the rows of a step, as `fit` takes it.
        measure: How good the model is on rows held out.
        rows: What `fit` is given; by default the rows to train on.
        held_out: What `measure` is given; by default the rows to measure on.
        watched: What of `measure` is a metric at every checkpoint.
        before: Writes what a resumed run needs besides checkpoint and rows; called before the first checkpoint.
        finish: What follows the last step; by default `measure` on all rows held out.

    Returns:
        The command's status: 0, or 130 after Ctrl-C.
    """
    folder, settings, config = plan.folder, plan.settings, plan.config
    rows, held_out = kept[0] if rows is None else rows, kept[1] if held_out is None else held_out
    optimizer, done = optimizer_of(model, config), 0
    if plan.resumed:
        done = load_fit(folder.checkpoint, optimizer)
        folder.rewind(done)
        folder.write_settings(settings)
        print(f"resuming {folder.path} after step {done}")
    else:
        settings["started_from"] = described
        folder.create(settings, overwrite=plan.overwrite)
        _keep_rows(plan, kept)
        folder.write_settings(settings)  # which now has the checksums of the rows
        before()
        save_fit(folder.checkpoint, write, optimizer, 0, settings)  # from now on there is a checkpoint to load
        measured_on = f"{len(kept[1])} held out ({len(set(kept[1]))} distinct)"
        print(printable(f"{plan.command}: {len(kept[0]) or 'fresh'} rows, {measured_on}, start: {described}"))

    shown = dict.fromkeys(("loss", *(f"held_out_{name}" for name in watched)), ".3f")

    def save(to: Path, notes: dict[str, Any]) -> None:
        save_fit(to, write, optimizer, journal.done, notes)

    with Journal(folder, settings, save, shown, done) as journal:

        def on_step(metrics: Metrics) -> bool:
            if journal.is_due(int(metrics["step"])):
                found, _ = measure(held_out[:500])
                metrics |= {f"held_out_{name}": found[name] for name in watched if name in found}
            return journal(metrics)

        fit(model, rows, loss, config, optimizer=optimizer, done=done, on_step=on_step)
    row = f" {settings['algorithm']}" if "algorithm" in settings else ""
    if journal.stopped(f"{plan.command}{row}{plan.words}"):
        return 130
    measured, text = finish() if finish else measure(held_out)
    save(folder.checkpoint, settings)  # once more: a reward model is normalised at the end
    _report(plan, measured, text)
    return 0


def _report(plan: Plan, measured: dict[str, Any], text: str) -> None:
    """The end of a run: what was measured, and the curve of the loss."""

    def draw(ax: Axes, history: list[Metrics]) -> None:
        steps, losses = ([row[name] for row in history] for name in ("step", "loss"))
        ax.plot(steps, plot_style.running_mean(losses, 5), color=plot_style.CONTROL, label="training rows")
        seen = [(row["step"], row["held_out_loss"]) for row in history if "held_out_loss" in row]
        ax.plot(*zip(*seen, strict=True), "o-", label="rows held out")
        ax.set(xlabel="step", ylabel="loss", title=f"{plan.command}, seed {plan.config.seed}, mean of 5 steps")

    write_report(plan.folder, text, measured, draw)


def save_fit(
    folder: Path, write: Callable[[Path], None], optimizer: torch.optim.Optimizer, step: int, notes: dict[str, Any]
) -> None:
    """Writes a checkpoint from which `fit` can continue, whole or not at all.

    Args:
        folder: The checkpoint's folder; replaced if it exists.
        write: Writes the model's files into a folder (`save_policy`, `RewardModel.save`).
        optimizer: Its moments are kept.
        step: Steps taken.
        notes: Plain values to keep beside it.
    """

    def write_all(new: Path) -> None:
        write(new)
        checkpoints.save_trainer(new, optimizer_tensors(optimizer, "optimizer"), {**notes, "step": step})

    checkpoints.write_folder(folder, write_all)


def load_fit(folder: Path, optimizer: torch.optim.Optimizer) -> int:
    """Restores the moments that `save_fit` kept into `optimizer`, and returns the number of steps taken.

    Args:
        folder: The checkpoint's folder.
        optimizer: That of the model, which the caller has loaded already.

    Raises:
        ValueError: If the checkpoint is missing, damaged, or of another model.
    """
    tensors, notes = checkpoints.load_trainer(folder)
    try:
        step: int = checkpoints.number(notes, "step", int, least=0)
        restore_optimizer(optimizer, tensors, "optimizer")
    except (RuntimeError, ValueError, KeyError) as error:
        if is_out_of_memory(error):
            raise
        reason = str(error).splitlines()[0]
        raise ValueError(f"the checkpoint in {folder} does not fit this model: {reason}") from error
    return step


# --- measuring ---


@torch.no_grad()
def measure_loss(loss: Callable[[Rows], Tensor], held_out: Rows) -> Measured:
    """The loss on rows held out, in nats a token, and the perplexity."""
    batches = [held_out[i : i + 500] for i in range(0, len(held_out), 500)]
    mean = sum(loss(batch).item() * len(batch) for batch in batches) / len(held_out)
    perplexity = math.exp(mean) if mean < 700 else math.inf  # beyond what a float holds
    text = f"loss on {len(held_out)} rows held out: {mean:.4f} nats a token (perplexity {perplexity:.3f})"
    return {"held_out": len(held_out), "loss": mean}, text


def score_samples(
    plan: Plan, policy: PreTrainedModel, vocabulary: AnyVocabulary, n: int = 1000
) -> tuple[dict[str, Any], str, list[str]]:
    """The verifier's scores of a policy's samples: as numbers, as a sentence, and with five of the samples."""
    task = plan.task
    problems = task.problems("held_out", n, seed=f"{plan.command}/score")
    prompts = [problem.prompt for problem in problems]
    policy.to(plan.device)  # type: ignore[arg-type]
    options: dict[str, Any] = {"max_new_tokens": task.max_new_tokens, "system": task.instruction}
    completions = write_completions(policy, vocabulary, prompts, group_size=1, seed="score", **options)
    scores = verify_all(task, problems, completions).values
    mean, std, best = statistics.mean(scores), statistics.stdev(scores), max(scores)
    distinct = len(set(prompts))
    summary = (
        f"score of {n} samples ({distinct} distinct problems) by the task: {mean:.3f}, standard deviation "
        f"{std:.3f}, best {best:g}"
    )
    shown = [f"  {prompt} {text}" for prompt, text in zip(prompts[:5], completions, strict=False)]
    return {"n": n, "problems": distinct, "mean": mean, "std": std, "max": best}, summary, ["samples:", *shown]
