"""What the commands `pretrain`, `sft`, `reward` and `prefer` have in common: each of them is a `Job`.

    rows (a file's, or the task's own) -> checked -> run folder -> fit -> measured on rows held out

They differ in the rows they read, in the loss, and in what they measure. The rows are copied into the run folder, and a
resumed run reads the copy, so it does not matter if the original file has changed.
"""

import argparse
import dataclasses
import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from matplotlib.axes import Axes
from torch import Tensor
from transformers import PreTrainedModel

from rlhf_minimal.cli import programs, starts
from rlhf_minimal.cli.console import at_least_1
from rlhf_minimal.cli.runs import Journal, check_writable, write_report
from rlhf_minimal.cli.settings import Setting, add_flags, add_run_flags, check_read, fields_of, settings_of_run
from rlhf_minimal.extras import curves
from rlhf_minimal.models import AnyVocabulary, context_length
from rlhf_minimal.tasks import TASK_NAMES, CompletionRow, Task, hold_out, read_rows, verify_all, write_rows
from rlhf_minimal.tasks.base import Split
from rlhf_minimal.training import save_policy
from rlhf_minimal.training.checkpoints import flush, naming
from rlhf_minimal.training.fit import FitConfig, Student, fit, rows_of_step
from rlhf_minimal.training.metrics import Metrics
from rlhf_minimal.training.preferences import write_completions
from rlhf_minimal.training.run_folder import RunFolder, check_same

Rows = Sequence[Any]  # all of one type: TextRow, CompletionRow, PairRow or StepRow, or what `Job.prepared` made of them


@dataclass(frozen=True)
class CourseConfig:
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
    task, lr = defaults.get("task", CourseConfig.task), defaults.get("lr", FitConfig.lr)
    said = {
        "task": f"that of the run in --start, else {task}; there are {TASK_NAMES}",
        "data": f"the task's own rows; a file's have {columns}",
        "lr": f"{lr:g}; {starts.REAL_MODEL_LR:g} for a real model",
    }
    return [
        *fields_of(CourseConfig, said, **defaults),
        *fields_of(FitConfig, said, **{"batch_size": 64, **defaults}),
        Setting("started_from", str | None, None),
    ]


class Job:
    """One of the commands: what it trains, on which rows, and what it measures. An object of it is a single run.

    The names in capitals, `add_arguments` and `run` are the command's, as they are the module's of any other command.

    Args:
        settings: The run's.
        task: Where rows come from if no file is given.
        folder: The run's.
        resumed: Whether training continues from the folder's checkpoint instead of beginning with the start.
    """

    ABOUT: ClassVar[str]
    SETTINGS: ClassVar[list[Setting]]
    OUT: ClassVar[str] = "a new one under runs/"  # what help says of the run folder
    MAY_CHANGE: ClassVar[tuple[str, ...]] = ("device",)  # settings that a resumed run may be given anew
    GOES_WITH: ClassVar[dict[str, tuple[str, Any]]] = {}  # settings that need another one (see `check_read`)
    IF_MEMORY_RUNS_OUT: ClassVar[str] = "lower --batch-size"

    row: type
    watched: ClassVar[tuple[str, ...]] = ("loss",)  # what of `measure` is a metric at every checkpoint
    compares: ClassVar[bool] = False  # whether rows of its own are samples of the start, one better than another

    def __init__(self, settings: dict[str, Any], task: Task, folder: RunFolder, *, resumed: bool):
        self.settings, self.task, self.folder = settings, task, folder
        self.seen: Metrics = {}  # metrics of the batch whose loss was computed last
        self.begin(str(folder.checkpoint) if resumed else settings["start"], resumed)

    @classmethod
    def for_task(cls, task: Task, settings: dict[str, Any]) -> "type[Job]":
        """This class, or another one that suits the task."""
        return cls

    @classmethod
    def missing(cls, task: Task, settings: dict[str, Any]) -> str | None:
        """What the task lacks to make rows of its own, in words for an error message; None if nothing."""
        return None

    def begin(self, start: str, resumed: bool) -> None:
        """Loads the model."""
        self.model, self.vocabulary, self.described = starts.load_start(start, self.task, self.settings["seed"])

    def write(self, folder: Path) -> None:
        """Writes the model's files."""
        save_policy(folder, self.model, self.vocabulary)

    def own_rows(self, split: Split, n: int, seed: int) -> Rows:
        """Rows of the task itself."""
        raise NotImplementedError

    def prepared(self, rows: Rows, split: Split) -> Rows:
        """What the loss needs, computed once from the checked rows; by default the rows themselves."""
        return rows

    def batch(self, rows: Rows, step: int) -> Rows:
        """The rows of one step."""
        return rows_of_step(rows, step, self.settings["batch_size"], self.settings["seed"])

    def keep(self) -> None:
        """Writes into the new run folder what a resumed run needs besides checkpoint and rows."""

    def loss(self, rows: Rows) -> Tensor:
        """The loss of a batch, to minimise."""
        raise NotImplementedError

    @torch.no_grad()
    def measure(self, held_out: Rows) -> tuple[dict[str, Any], str]:
        """How good the model is on rows held out: as plain values, and as text."""
        batches = [held_out[i : i + 500] for i in range(0, len(held_out), 500)]
        loss = sum(self.loss(batch).item() * len(batch) for batch in batches) / len(held_out)
        perplexity = math.exp(loss) if loss < 700 else math.inf  # beyond what a float holds
        text = f"loss on {len(held_out)} rows held out: {loss:.4f} nats a token (perplexity {perplexity:.3f})"
        return {"held_out": len(held_out), "loss": loss}, text

    def finish(self, rows: Rows, held_out: Rows) -> tuple[dict[str, Any], str]:
        """What follows the last step; returns the run's measurements and its report, as `measure`."""
        return self.measure(held_out)

    def samples(self, policy: PreTrainedModel, n: int = 1000) -> tuple[dict[str, Any], str, list[str]]:
        """The verifier's scores of a policy's samples: as numbers, as a sentence, and with five of the samples."""
        problems = self.task.problems("held_out", n, seed=f"{self.settings['command']}/score")
        prompts = [problem.prompt for problem in problems]
        policy.to(self.model.device)  # type: ignore[arg-type]
        options: dict[str, Any] = {"max_new_tokens": self.task.max_new_tokens, "system": self.task.instruction}
        completions = write_completions(policy, self.vocabulary, prompts, group_size=1, seed="score", **options)
        scores = verify_all(self.task, problems, completions).values
        mean, std, best = statistics.mean(scores), statistics.stdev(scores), max(scores)
        distinct = len(set(prompts))
        summary = (
            f"score of {n} samples ({distinct} distinct problems) by the task: {mean:.3f}, standard deviation "
            f"{std:.3f}, best {best:g}"
        )
        some = [f"  {prompt} {text}" for prompt, text in zip(prompts[:5], completions, strict=False)]
        return {"n": n, "problems": distinct, "mean": mean, "std": std, "max": best}, summary, ["samples:", *some]

    # --- rows, made or read, and kept ---

    def new_rows(self) -> tuple[Rows, Rows]:
        """Rows to train on and rows to measure on, all of them checked."""
        settings = self.settings
        if settings["data"] is None:
            return self.made("train", settings["rows"]), self.made("held_out", settings["held_out"])
        rows = self.checked(settings["data"])
        train, held_out = hold_out(rows, settings["held_out"])
        if unused := len(rows) - len(train) - len(held_out):
            print(f"{unused} of {len(rows)} rows are not used: they stand twice, or --held-out has enough of them")
        return train, held_out

    def made(self, split: Split, n: int) -> Rows:
        """Rows of the task itself, checked."""
        return self.checked(map(vars, self.own_rows(split, n, self.settings["seed"])))

    def checked(self, source: Any) -> Rows:
        """Rows that the model can read."""
        limit = context_length(self.model)
        return read_rows(source, self.row, self.vocabulary, max_length=limit)

    def keep_rows(self, rows: Rows, held_out: Rows) -> None:
        """Writes them into the run folder."""
        for file, some in zip(self.row_files, (rows, held_out), strict=True):
            if some:
                with naming(file):
                    write_rows(file, some)
                    flush(file)
                check_same(self.settings, file.name, file)

    def kept_rows(self) -> tuple[Rows, Rows]:
        """The rows of a run that is resumed."""
        rows, held_out = map(self.kept_file, self.row_files)
        return rows, held_out

    def kept_file(self, file: Path) -> Rows:
        """The rows of one file of the run folder, which nobody has changed since."""
        check_same(self.settings, file.name, file)
        return self.checked(file)

    @property
    def row_files(self) -> tuple[Path, Path]:
        """The files of the rows in the run folder."""
        return self.folder.path / "rows.jsonl", self.folder.path / "held-out.jsonl"

    # --- the command ---

    @classmethod
    def add_arguments(cls, sub: argparse.ArgumentParser) -> None:
        """The command's flags."""
        starts.add_model_flag(sub, "--start")
        add_run_flags(sub, out=cls.OUT)
        add_flags(sub, cls.SETTINGS)

    @classmethod
    def declared(cls, args: argparse.Namespace) -> list[Setting]:
        """The command's settings, with the defaults that they have beside these flags."""
        return cls.SETTINGS

    @classmethod
    def run(cls, args: argparse.Namespace) -> int:
        """The command, from its flags to its run folder."""
        folder, settings, config, task = cls._plan(args)
        command, device = settings["command"], starts.find_device(settings["device"])
        if not args.resume:
            folder.check_free(overwrite=args.overwrite)
            check_writable(folder.path)
        else:
            folder.hold()
        job = cls.for_task(task, settings)(settings, task, folder, resumed=args.resume)
        job.model.to(device)  # type: ignore[arg-type]
        raw = job.kept_rows() if args.resume else job.new_rows()
        rows, held_out = job.prepared(raw[0], "train"), job.prepared(raw[1], "held_out")
        student = Student.begin(job.model, job.write, config)
        if args.resume:
            student.restore(folder.checkpoint)
            folder.rewind(student.step)
            folder.write_settings(settings)
            print(f"resuming {folder.path} after step {student.step}")
        else:
            settings["started_from"] = job.described
            folder.create(settings, overwrite=args.overwrite)
            job.keep_rows(*raw)
            folder.write_settings(settings)  # which now has the checksums of the rows
            job.keep()
            student.save(folder.checkpoint, settings)  # from now on there is a checkpoint to load
            measured_on = f"{len(held_out)} held out ({len(set(raw[1]))} distinct)"
            print(f"{command}: {len(rows) or 'fresh'} rows, {measured_on}, start: {job.described}")

        shown = dict.fromkeys(("loss", *(f"held_out_{name}" for name in job.watched)), ".3f")
        with Journal(folder, settings, student.save, shown, student.step) as journal:

            def on_step(metrics: Metrics) -> bool:
                metrics |= job.seen
                if journal.is_due(student.step):
                    found, _ = job.measure(held_out[:500])
                    metrics |= {f"held_out_{name}": found[name] for name in job.watched if name in found}
                return journal(metrics)

            fit(student, config, lambda step: job.loss(job.batch(rows, step)), on_step)
        row = f" {settings['algorithm']}" if "algorithm" in settings else ""
        if journal.stopped(f"{command}{row}{programs.flags(args)}"):
            return 130
        measured, text = job.finish(rows, held_out)
        student.save(folder.checkpoint, settings)  # once more: a reward model is normalised at the end
        _report(command, folder, config, measured, text)
        return 0

    @classmethod
    def _plan(cls, args: argparse.Namespace) -> tuple[RunFolder, dict[str, Any], FitConfig, Task]:
        """Reads and checks all settings before anything is loaded or written."""
        starts.complete(args)
        command, declared = cls.__name__.lower(), starts.with_rates(cls.declared(args), args)
        folder, settings, given = settings_of_run(args, declared, command, command, cls.MAY_CHANGE)
        at_least_1(settings, "rows", "held_out", "save_every")
        check_read(settings, given, cls.GOES_WITH)
        if settings["data"] is not None and "rows" in given:
            raise ValueError(
                "--rows says how many rows the task makes, and a file in --data is read whole: leave --rows out"
            )
        task = programs.find_task(settings, args.task)
        missing = cls.for_task(task, settings).missing(task, settings)
        if settings["data"] is None and missing:
            raise ValueError(f"the task {task.name!r} has no {missing}; give a file of rows with --data")
        if settings["data"] is None and cls.compares and settings["start"] == "untrained":
            raise ValueError(
                "the samples of an untrained policy are noise, and teach nothing when compared: give a fine-tuned one "
                "with --start"
            )
        if not args.resume:
            starts.check_start(settings["start"], task, settings["task"])
        config = FitConfig(**{field.name: settings[field.name] for field in dataclasses.fields(FitConfig)})
        return folder, settings, config, task


def demonstrations(task: Task, vocabulary: AnyVocabulary, split: Split, n: int, seed: int) -> list[CompletionRow]:
    """Prompts of a task, as the model will be asked, with completions of its teacher."""
    assert task.teacher is not None
    rng = random.Random(f"sft/{split}/{seed}")
    problems = task.problems(split, n, seed=f"sft/{seed}")
    prompts = [vocabulary.prompt_text(problem.prompt, system=task.instruction) for problem in problems]
    return [CompletionRow(asked, task.teacher(problem, rng)) for asked, problem in zip(prompts, problems, strict=True)]


def _report(command: str, folder: RunFolder, config: FitConfig, measured: dict[str, Any], text: str) -> None:
    """The end of a run: what was measured, and the curve of the loss."""

    def draw(ax: Axes, history: list[Metrics]) -> None:
        steps, losses = ([row[name] for row in history] for name in ("step", "loss"))
        ax.plot(steps, curves.running_mean(losses, 5), color=curves.CONTROL, label="training rows")
        seen = [(row["step"], row["held_out_loss"]) for row in history if "held_out_loss" in row]
        ax.plot(*zip(*seen, strict=True), "o-", label="rows held out")
        ax.set(xlabel="step", ylabel="loss", title=f"{command}, seed {config.seed}, mean of 5 steps")

    write_report(folder, text, measured, draw)
