"""`pretrain`, `sft`, `reward` and `prefer`: four commands, one course.

    rows (a file's, or the task's own) -> checked -> run folder -> fit -> measured on rows held out

They differ in the rows they read, the loss they take and what they measure, which is all that a `Job` says. The rows
are kept in the run folder: a resumed run reads them there, whatever has become of the file they came from.
"""

import argparse
import dataclasses
import math
import random
import statistics
import typing
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from torch import Tensor
from transformers import PreTrainedModel

from rlhf_minimal.cli_shared import (
    StopOnCtrlC,
    add_model_flag,
    at_least_1,
    check_writable,
    find_device,
    load_start,
    model_as_start,
    pointing_to_the_checkpoint,
    report,
    settle,
    writing,
)
from rlhf_minimal.extras import curves
from rlhf_minimal.models import RewardModel, load_reward_model
from rlhf_minimal.pairwise import PAIRWISE, pairwise_loss
from rlhf_minimal.tasks import TASKS, CompletionRow, PairRow, Task, TextRow, get_task, read_rows, verify_all, write_rows
from rlhf_minimal.tasks.base import Split
from rlhf_minimal.training import load_policy, save_policy, supervised_loss, write_folder
from rlhf_minimal.training.checkpoints import flush
from rlhf_minimal.training.fit import FitConfig, Student, fit, rows_of_step
from rlhf_minimal.training.metrics import Metrics
from rlhf_minimal.training.pairwise import (
    Example,
    describe,
    encode,
    judge_examples,
    make_pairs,
    read_reference,
    reject_own,
)
from rlhf_minimal.training.preferences import judge_reward_model, preference_loss, sample_pairs, write_answers
from rlhf_minimal.training.progress import Progress
from rlhf_minimal.training.run_folder import RunFolder
from rlhf_minimal.training.supervised import language_loss

Rows = Sequence[Any]  # all of one kind: TextRow, CompletionRow or PairRow; or what a job has made of them
BY_POLICY = [name for name, row in PAIRWISE.items() if row.reference]  # rows of the second table that train a policy

ABOUT = {
    "pretrain": "learn to write: next-token prediction on the task's texts, or on a file's; a task without texts has "
    "its teacher imitated, mistakes included, as a start for train",
    "sft": "learn to answer: imitate demonstrations, with the loss on the answer only",
    "reward": "learn what is preferred: a reward model, by Bradley-Terry, on pairs of a policy's samples or of a file",
    "prefer": "learn from preferences without a reward model: a policy against its start, which is kept in reference/; "
    "spin takes answers to imitate and rejects samples of the start, one iteration a run: start the next from this one",
}
# What a command does unless told otherwise. The numbers belong to the tiny model and the task `reviews`.
DEFAULTS: dict[str, dict[str, Any]] = {
    "pretrain": {"start": "untrained", "rows": 10_000, "held_out": 1000, "steps": 300, "batch_size": 64},
    "sft": {"start": "untrained", "rows": 10_000, "held_out": 1000, "steps": 700, "batch_size": 64},
    "reward": {"start": "shipped", "rows": 32_000, "held_out": 2000, "steps": 1200, "batch_size": 64, "lr": 2e-3}
    | {"normalize": "samples"},
    "prefer": {"start": "shipped", "rows": 10_000, "held_out": 1000, "steps": 300, "batch_size": 64, "lr": 2e-4},
}
# The settings that are no field of `FitConfig`, and what may stand there.
KINDS: dict[str, Any] = {
    **dict.fromkeys(("task", "start", "device"), str),
    **dict.fromkeys(("rows", "held_out", "save_every"), int),
    "data": str | None,
    "started_from": str | None,
    "algorithm": str,
    "beta": float | None,
    "normalize": typing.Literal["samples", "none"] | None,
}
FIT_HELP = {
    "steps": "optimiser steps",
    "batch_size": "rows per step",
    "lr": "peak learning rate",
    "warm_up": "steps until the peak; then it falls to zero",
    "weight_decay": "of AdamW",
    "grad_clip": "largest norm of a gradient",
    "seed": "decides rows, their order and new weights",
}


def add_arguments(sub: Any, command: str) -> None:
    """The flags of one of the commands; what is not given is None, and DEFAULTS fills it in."""
    defaults = dataclasses.asdict(FitConfig()) | DEFAULTS[command]
    columns = {"pretrain": "text", "sft": "prompt and completion, or messages", "reward": "prompt, chosen and rejected"}
    columns["prefer"] = "prompt, chosen and rejected; for spin prompt and completion"
    if command == "prefer":
        sub.add_argument("algorithm", choices=BY_POLICY, help="a row of the second table")
        sub.add_argument("--beta", type=float, metavar="FLOAT", help="strength of the leash (default: the row's)")
    if command != "pretrain":
        sub.add_argument("--task", help=f"{', '.join(TASKS)} (default reviews)")
        sub.add_argument("--device", help="cpu, cuda, mps (default cpu)")
        sub.add_argument("--out", help="run folder (default: a new one under runs/)")
        sub.add_argument("--overwrite", action="store_true", help="replace the run in --out")
        shown = f"(default {defaults['start']})"
        about = {"reward": "whose samples are compared and whose body the reward model gets: "}
        about["prefer"] = "the policy to train, whose samples are compared and which is the reference: "
        sub.add_argument(
            "--start",
            help=f"{about.get(command, '')}a checkpoint or run folder, 'untrained', 'shipped', or hf:NAME {shown}",
        )
    else:
        sub.add_argument("--start", help="a checkpoint or run folder, 'untrained', or hf:NAME (default untrained)")
    add_model_flag(sub, "--start")
    sub.add_argument("--data", metavar="FILE", help=f"JSON lines with {columns[command]} (default: the task's own)")
    sub.add_argument("--rows", type=int, help=f"rows to make of the task's own (default {defaults['rows']})")
    sub.add_argument("--held-out", type=int, help=f"rows to measure on (default {defaults['held_out']})")
    sub.add_argument("--resume", action="store_true", help="continue the run in --out with its own settings")
    sub.add_argument("--save-every", type=int, help="steps between checkpoints and measurements (default 100)")
    if command == "reward":
        sub.add_argument(
            "--normalize",
            choices=["samples", "none"],
            help="shift and scale scores to mean 0 and deviation 1 on the rows, or leave them (default samples)",
        )
    kinds = typing.get_type_hints(FitConfig)
    for field in dataclasses.fields(FitConfig):
        if command == "pretrain" and field.name in ("steps", "batch_size", "lr", "seed"):
            continue  # pretrain has had these for longer
        sub.add_argument(
            "--" + field.name.replace("_", "-"),
            type=kinds[field.name],
            metavar=kinds[field.name].__name__.upper(),
            help=f"{FIT_HELP[field.name]} (default {defaults[field.name]})",
        )


# --- what differs --------------------------------------------------------------------------------------------------


class Job:
    """What one command fits, from which rows, and what it measures. This one is what they have in common.

    Args:
        settings: The run's.
        task: Where rows come from if no file is given.
        folder: The run's.
        resumed: Whether to go on from the folder's checkpoint, and not to begin with the settings' start.
    """

    row: type
    shown: tuple[str, ...] = ("loss", "held_out_loss", "held_out_accuracy")

    def __init__(self, settings: dict[str, Any], task: Task, folder: RunFolder, *, resumed: bool):
        self.settings, self.task, self.folder = settings, task, folder
        self.seen: Metrics = {}  # of the batch whose loss was computed last
        self.begin(str(folder.checkpoint) if resumed else settings["start"], resumed)

    @classmethod
    def missing(cls, task: Task, settings: dict[str, Any]) -> str | None:
        """What the task lacks to make rows of its own, said to a person."""
        return None

    def begin(self, start: str, resumed: bool) -> None:
        """Loads the model."""
        self.model, self.vocabulary, self.described = load_start(start, self.task, self.settings["seed"])

    @property
    def limit(self) -> int:
        """Tokens that the model can read."""
        return int(self.model.config.get_text_config().max_position_embeddings)

    def write(self, folder: Path) -> None:
        """Writes the model's files."""
        save_policy(folder, self.model, self.vocabulary)

    def own_rows(self, split: Split, n: int, seed: int) -> Rows:
        """Rows of the task itself."""
        raise NotImplementedError

    def prepared(self, rows: Rows, split: Split) -> Rows:
        """What the loss takes, made of checked rows before the first step: mostly the rows as they are."""
        return rows

    def keep(self) -> None:
        """Writes into the new run folder what a resumed run needs besides checkpoint and rows."""

    def loss(self, rows: Rows) -> Tensor:
        """Of a batch, to minimise."""
        raise NotImplementedError

    def watch(self, rows: Rows) -> Metrics:
        """Numbers on rows held out, cheap enough to be taken now and then."""
        return {"held_out_loss": self.mean_loss(rows)}

    @torch.no_grad()
    def mean_loss(self, rows: Rows) -> float:
        """The loss, a mean over batches of equal size but for the last."""
        parts = [rows[i : i + 500] for i in range(0, len(rows), 500)]
        return sum(self.loss(part).item() * len(part) for part in parts) / len(rows)

    def finish(self, rows: Rows, held_out: Rows) -> tuple[dict[str, Any], str]:
        """After the last step: all measurements as plain values, and the report as text."""
        loss = self.mean_loss(held_out)
        text = f"loss on {len(held_out)} rows held out: {loss:.4f} nats a token (perplexity {math.exp(loss):.3f})"
        return {"held_out": len(held_out), "loss": loss}, text

    def samples(self, policy: PreTrainedModel, n: int = 1000) -> tuple[dict[str, Any], list[str]]:
        """What the task's verifier says of a policy's samples, and some of them."""
        problems = self.task.problems("held_out", n, seed=f"{self.settings['command']}/score")
        prompts = [problem.prompt for problem in problems]
        found = {"group_size": 1, "max_new_tokens": self.task.max_new_tokens, "seed": "score"}
        answers = write_answers(policy.to(self.model.device), self.vocabulary, prompts, **found)  # type: ignore[arg-type]
        scores = verify_all(self.task, problems, answers).values
        score = {"n": n, "mean": statistics.mean(scores), "std": statistics.stdev(scores), "max": max(scores)}
        return score, [f"  {prompt} {answer}" for prompt, answer in zip(prompts[:5], answers, strict=False)]


class Pretrain(Job):
    """Texts, each token of which is predicted from those before."""

    row = TextRow

    @classmethod
    def missing(cls, task: Task, settings: dict[str, Any]) -> str | None:
        """A corpus."""
        return None if task.corpus else "texts to read"

    def own_rows(self, split: Split, n: int, seed: int) -> Rows:
        """Pages of the task's corpus."""
        assert self.task.corpus is not None
        rng = random.Random(f"pretrain/{split}/{seed}")
        return [TextRow(self.task.corpus(rng)) for _ in range(n)]

    def loss(self, rows: Rows) -> Tensor:
        """Cross-entropy of whole texts."""
        return language_loss(self.model, self.vocabulary, [row.text for row in rows])


class Sft(Job):
    """Prompts with answers to imitate."""

    row = CompletionRow

    @classmethod
    def missing(cls, task: Task, settings: dict[str, Any]) -> str | None:
        """A teacher."""
        return None if task.teacher else "teacher to imitate"

    def own_rows(self, split: Split, n: int, seed: int) -> Rows:
        """The answers of the task's teacher."""
        return _demonstrations(self.task, split, n, seed)

    def loss(self, rows: Rows) -> Tensor:
        """Cross-entropy of the answers; the prompt is read, not learnt."""
        prompts, answers = [row.prompt for row in rows], [row.completion for row in rows]
        return supervised_loss(self.model, self.vocabulary, prompts, answers)

    def finish(self, rows: Rows, held_out: Rows) -> tuple[dict[str, Any], str]:
        """The loss, and what the task's verifier says of samples."""
        measured, text = super().finish(rows, held_out)
        if self.settings["data"] is not None:
            return measured, text  # rows from elsewhere need not be the task's
        score, examples = self.samples(self.model)
        return {**measured, "score": score}, "\n".join([text, _said(score), "samples:", *examples])


class Reward(Job):
    """Pairs of answers, of which one was preferred."""

    row = PairRow

    def begin(self, start: str, resumed: bool) -> None:
        """Loads the reward model, or makes one of the policy."""
        if resumed:
            self.reward_model, self.described = load_reward_model(start), start
        else:
            self.policy, vocabulary, self.described = load_start(start, self.task, self.settings["seed"])
            _check_trained(self)
            self.reward_model = RewardModel.from_policy(self.policy, vocabulary, seed=self.settings["seed"])
        self.model, self.vocabulary = self.reward_model.model, self.reward_model.vocabulary

    def write(self, folder: Path) -> None:
        """Writes the reward model's files."""
        self.reward_model.save(folder)

    def own_rows(self, split: Split, n: int, seed: int) -> Rows:
        """Pairs of the policy's samples with noisy labels."""
        self.policy.to(self.model.device)  # type: ignore[arg-type]
        return sample_pairs(self.policy, self.vocabulary, self.task, n, split=split, seed=seed)

    def loss(self, rows: Rows) -> Tensor:
        """Bradley-Terry's."""
        return preference_loss(PAIRWISE["bradley_terry"], self.reward_model, rows)

    def watch(self, rows: Rows) -> Metrics:
        """Loss and accuracy on pairs held out."""
        found = judge_reward_model(self.reward_model, rows)
        return {"held_out_loss": found.loss, "held_out_accuracy": found.accuracy}

    def finish(self, rows: Rows, held_out: Rows) -> tuple[dict[str, Any], str]:
        """Accuracy, its limit, calibration; and the normalisation, from now on part of the model."""
        found = judge_reward_model(self.reward_model, held_out)
        if self.settings["normalize"] == "samples":
            some = rows[:2000]
            answers = [row.chosen for row in some] + [row.rejected for row in some]
            self.reward_model.normalize([row.prompt for row in some] * 2, answers)
        scale = {"mean": self.reward_model.mean, "std": self.reward_model.std}
        return {
            **found.as_json(),
            "normalize": scale,
        }, f"{found}\nscores: (raw - {scale['mean']:.3f}) / {scale['std']:.3f}"


class Prefer(Job):
    """Pairs for a policy, which is measured against its start: DPO, IPO and one iteration of SPIN.

    The reference is read once, before the first step. A run keeps it under `reference/` and reads it again from there
    when it is resumed.
    """

    shown = (*Job.shown, "held_out_gap")

    @classmethod
    def missing(cls, task: Task, settings: dict[str, Any]) -> str | None:
        """A teacher, where demonstrations are preferred to the policy's own samples."""
        return Sft.missing(task, settings) if cls.rejects_own(settings) else None

    def begin(self, start: str, resumed: bool) -> None:
        """Loads the policy and, where it has moved already, its reference."""
        super().begin(start, resumed)
        _check_trained(self)
        self.algorithm = PAIRWISE[self.settings["algorithm"]]
        if self.settings["beta"] is not None:
            loss = partial(self.algorithm.loss, beta=self.settings["beta"])
            self.algorithm = dataclasses.replace(self.algorithm, loss=loss)
        self.row = CompletionRow if self.rejects_own(self.settings) else PairRow
        self.reference = load_policy(self.start)[0] if resumed else self.model

    @staticmethod
    def rejects_own(settings: dict[str, Any]) -> bool:
        """Whether the rejected answers are samples of the reference."""
        return PAIRWISE[settings["algorithm"]].rejected == "own"

    @property
    def start(self) -> Path:
        """Where the policy lies as it was before the first step."""
        return self.folder.reference

    def keep(self) -> None:
        """Writes the reference."""
        write_folder(self.start, self.write)

    def own_rows(self, split: Split, n: int, seed: int) -> Rows:
        """Pairs of the start's samples with noisy labels; demonstrations, where it rejects its own samples."""
        if self.rejects_own(self.settings):
            return _demonstrations(self.task, split, n, seed)
        return sample_pairs(self.model, self.vocabulary, self.task, n, split=split, seed=seed)

    def prepared(self, rows: Rows, split: Split) -> list[Example]:
        """Token ids of both answers, with the reference's log-probs."""
        self.reference.to(self.model.device)  # type: ignore[arg-type]
        own = self.rejects_own(self.settings)
        examples = encode(rows, self.vocabulary, own=own)
        if own:
            budget = self.task.max_new_tokens if self.settings["data"] is None else None
            seed = f"{self.settings['seed']}/{split}"
            examples = reject_own(examples, self.reference, self.vocabulary, budget, seed=seed)
        return read_reference(examples, self.reference, self.vocabulary)

    def loss(self, rows: Rows) -> Tensor:
        """What the algorithm's row says."""
        pairs = make_pairs(self.algorithm, self.model, self.vocabulary, rows)
        self.seen = describe(self.algorithm, pairs)
        return pairwise_loss(self.algorithm, pairs)

    def watch(self, rows: Rows) -> Metrics:
        """How the policy, as its own reward model, ranks pairs held out."""
        found = judge_examples(self.algorithm, self.model, self.vocabulary, rows)
        return {f"held_out_{name}": found[name] for name in ("loss", "accuracy", "gap")}

    def finish(self, rows: Rows, held_out: Rows) -> tuple[dict[str, Any], str]:
        """The same on all of them, and what the task's verifier says of samples before and after."""
        found = judge_examples(self.algorithm, self.model, self.vocabulary, held_out)
        lines = [
            f"{len(held_out)} pairs held out: accuracy {found['accuracy']:.3f}, loss {found['loss']:.3f}",
            f"log-ratio to the start in nats: chosen {found['chosen']:.3f}, rejected {found['rejected']:.3f}, "
            f"gap {found['gap']:.3f}",
        ]
        measured: dict[str, Any] = {"held_out": len(held_out), **found}
        if self.settings["data"] is None:
            for when, policy in (("before", load_policy(self.start)[0]), ("after", self.model)):
                measured[when], examples = self.samples(policy)
                lines.append(f"{when + ':':<8}{_said(measured[when])}")
            lines += ["samples:", *examples]
        return measured, "\n".join(lines)


JOBS: dict[str, type[Job]] = {"pretrain": Pretrain, "sft": Sft, "reward": Reward, "prefer": Prefer}


def _demonstrations(task: Task, split: Split, n: int, seed: int) -> list[CompletionRow]:
    assert task.teacher is not None
    rng = random.Random(f"sft/{split}/{seed}")
    problems = task.problems(split, n, seed=f"sft/{seed}")
    return [CompletionRow(problem.prompt, task.teacher(problem, rng)) for problem in problems]


def _said(score: dict[str, Any]) -> str:
    return (
        f"score of {score['n']} samples by the task: {score['mean']:.3f}, standard deviation {score['std']:.3f}, best "
        f"{score['max']:g}"
    )


def _check_trained(job: Job) -> None:
    if job.described == "untrained" and job.settings["data"] is None:
        raise ValueError("an untrained policy writes nothing worth comparing: name a fine-tuned one with --start")


# --- the course ----------------------------------------------------------------------------------------------------


def run(args: argparse.Namespace, command: str) -> int:
    """One of the commands, from its arguments to its run folder."""
    folder, settings, config, device = _plan(args, command)
    task = get_task(settings["task"])
    if args.resume:
        job = JOBS[command](settings, task, folder, resumed=True)
        job.model.to(device)  # type: ignore[arg-type]
        rows, held_out = _prepared(job, *_kept_rows(folder, job))
        student = Student.begin(job.model, job.write, config)
        student.restore(folder.checkpoint)
        folder.rewind(student.step)
        print(f"resuming {folder.path} after step {student.step}")
    else:
        folder.check_free(overwrite=args.overwrite)
        check_writable(folder.path)
        job = JOBS[command](settings, task, folder, resumed=False)
        settings["started_from"] = job.described
        job.model.to(device)  # type: ignore[arg-type]
        raw = _rows(job)
        rows, held_out = _prepared(job, *raw)
        student = Student.begin(job.model, job.write, config)
        folder.create(settings, overwrite=args.overwrite)
        _keep_rows(folder, *raw)
        job.keep()
        student.save(folder.checkpoint, settings)  # so that there is something to load from the first second on
        print(f"{command}: {len(rows)} rows, {len(held_out)} held out, start: {job.described}")

    shown = dict.fromkeys(job.shown, ".3f")
    save_every = settings["save_every"]
    progress = Progress(config.steps, shown, done=student.step, every=save_every)
    stop = StopOnCtrlC()

    def on_step(metrics: Metrics) -> bool:
        metrics |= job.seen
        saving = student.step % save_every == 0 or student.step == config.steps
        if saving:
            metrics |= job.watch(held_out[:500])
        folder.append(metrics)
        progress.update(student.step, metrics)
        if saving or stop.asked:
            folder.flush()
            student.save(folder.checkpoint, settings)
        return not stop.asked

    try:
        with stop, pointing_to_the_checkpoint(folder):
            fit(
                student,
                config,
                lambda step: job.loss(rows_of_step(rows, step, config.batch_size, config.seed)),
                on_step,
            )
    finally:
        progress.close()
    if student.step < config.steps:
        words = " ".join([command, settings.get("algorithm", "")]).strip()
        again = f"python -m rlhf_minimal {words} --out {folder.path} --resume"
        print(f"stopped after step {student.step}; go on with: {again}")
        return 130
    measured, text = job.finish(rows, held_out)
    student.save(folder.checkpoint, settings)  # once more: a reward model is normalised at the end
    _report(command, folder, config, measured, text)
    return 0


def _plan(args: argparse.Namespace, command: str) -> tuple[RunFolder, dict[str, Any], FitConfig, torch.device]:
    """Everything that can be settled, and found wrong, before anything is loaded or written."""
    model_as_start(args)
    fields = [field.name for field in dataclasses.fields(FitConfig)]
    names = [*fields, "task", "algorithm", "beta", "start", "data", "rows", "held_out", "save_every"]
    names += ["normalize", "device"]
    given = {name: getattr(args, name) for name in names if getattr(args, name, None) is not None}
    defaults: dict[str, Any] = {"command": command, "task": "reviews", "data": None, "device": "cpu"}
    defaults |= {"started_from": None, "save_every": 100} | dataclasses.asdict(FitConfig()) | DEFAULTS[command]
    if command == "prefer":
        defaults |= {"algorithm": args.algorithm, "beta": None}
    kinds = {name: kind for name, kind in KINDS.items() if name in defaults} | typing.get_type_hints(FitConfig)
    folder, settings = settle(args, defaults, given, kinds=kinds, may_change=("device",), name=command)
    at_least_1(settings, "rows", "held_out", "save_every")
    if settings["data"] is not None and "rows" in given:
        raise ValueError("--rows is how many the task shall make; of the file in --data every row is read")
    beta = settings.get("beta")
    if beta is not None and not 0 < beta < math.inf:
        raise ValueError(f"--beta must be above 0; got {beta}")
    task = get_task(settings["task"])
    missing = JOBS[command].missing(task, settings)
    if settings["data"] is None and missing:
        raise ValueError(f"the task {task.name!r} has no {missing}; give a file of rows with --data")
    config = FitConfig(**{name: settings[name] for name in fields})
    return folder, settings, config, find_device(settings["device"])


def _rows(job: Job) -> tuple[Rows, Rows]:
    """Rows to train on and rows to measure on, all of them checked."""
    settings = job.settings
    if settings["data"] is not None:
        rows: Rows = read_rows(settings["data"], job.row, job.vocabulary, max_length=job.limit)
        if len(rows) < 2:
            raise ValueError(f"{settings['data']} holds one row only, and at least one more is needed to measure on")
        kept = min(settings["held_out"], max(1, len(rows) // 10))
        return rows[:-kept], rows[-kept:]
    sizes: tuple[tuple[Split, int], ...] = (("train", settings["rows"]), ("held_out", settings["held_out"]))
    made = [job.own_rows(split, n, settings["seed"]) for split, n in sizes]
    checked = [read_rows(map(vars, raw), job.row, job.vocabulary, max_length=job.limit) for raw in made]
    return checked[0], checked[1]


def _prepared(job: Job, rows: Rows, held_out: Rows) -> tuple[Rows, Rows]:
    return job.prepared(rows, "train"), job.prepared(held_out, "held_out")


def _keep_rows(folder: RunFolder, rows: Rows, held_out: Rows) -> None:
    for name, some in (("rows.jsonl", rows), ("held-out.jsonl", held_out)):
        with writing(folder.path / name):
            write_rows(folder.path / name, some)
            flush(folder.path / name)


def _kept_rows(folder: RunFolder, job: Job) -> tuple[Rows, Rows]:
    """The rows of a run that is resumed."""
    files = [folder.path / f"{name}.jsonl" for name in ("rows", "held-out")]
    checked = [read_rows(file, job.row, job.vocabulary, max_length=job.limit) for file in files]
    return checked[0], checked[1]


def _report(command: str, folder: RunFolder, config: FitConfig, measured: dict[str, Any], text: str) -> None:
    """The end of a run: what was measured, and the curve of the loss."""

    def draw(ax: Axes, history: list[Metrics]) -> None:
        steps, losses = ([row[name] for row in history] for name in ("step", "loss"))
        curves.learning_curve(ax, steps, [losses], label="training rows", color=curves.CONTROL, smooth=5)
        seen = [(row["step"], row["held_out_loss"]) for row in history if "held_out_loss" in row]
        ax.plot(*zip(*seen, strict=True), "o-", label="rows held out")
        ax.set(xlabel="step", ylabel="loss", title=f"{command}, seed {config.seed}, mean of 5 steps")

    report(folder, text, measured, draw)
