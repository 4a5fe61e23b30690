"""`pretrain`: next-token prediction on texts, or imitation of a task's teacher."""

import argparse
import dataclasses
import random
from collections.abc import Sequence
from functools import partial

from torch import Tensor

from rlhf_minimal.algorithms import ALGORITHMS
from rlhf_minimal.cli.fitting import (
    Measured,
    Plan,
    Rows,
    add_fit_flags,
    demonstrations,
    measure_loss,
    plan_of,
    rows_of,
    settings_for,
    train,
)
from rlhf_minimal.cli.journal import measure_of
from rlhf_minimal.cli.settings import Setting
from rlhf_minimal.cli.starts import DEFAULT_TASK, load_start
from rlhf_minimal.cli.user_code import find_task
from rlhf_minimal.evaluate import evaluate
from rlhf_minimal.fit import IMITATION, completion_loss, language_loss, teacher_rows
from rlhf_minimal.lab.rows import TextRow
from rlhf_minimal.tasks import CompletionRow
from rlhf_minimal.tasks.base import Split
from rlhf_minimal.train import Recipe
from rlhf_minimal.training import save_policy

ABOUT_ACCEPT = "Largest training loss with which a start is accepted, where a teacher is imitated."
TEXTS = [
    *settings_for("text", start="untrained", task=DEFAULT_TASK, steps=300),
    Setting("accept", float, 0.14, ABOUT_ACCEPT),
]
TEACHER = [dataclasses.replace(s, default=vars(IMITATION).get(s.name, s.default)) for s in TEXTS]
SETTINGS = [
    text if text == other else dataclasses.replace(text, said=f"{other.default}, on texts {text.default}")
    for text, other in zip(TEXTS, TEACHER, strict=True)
]
RESUME_OVERRIDES = ("device", "accept")
OOM_HINT = "lower --batch-size"


def add_arguments(sub: argparse.ArgumentParser) -> None:
    """The command's flags."""
    add_fit_flags(sub, SETTINGS, out="a new one under runs/, or runs/start-TASK where a teacher is imitated")


def _declared(args: argparse.Namespace) -> Sequence[Setting]:
    """Other defaults where a teacher is imitated, and another folder."""
    if args.resume or args.data is not None:  # the run, or the file, has decided
        return TEXTS
    task = find_task({"task": args.task or DEFAULT_TASK, "programs": {}}, args.task)
    if task.corpus:
        return TEXTS
    if args.rows is not None:
        raise ValueError(f"--rows is for texts, and {task.name} has none: give --data, or use sft")
    args.out = args.out or f"runs/start-{task.start or task.name}"
    return TEACHER


def _plan(args: argparse.Namespace) -> Plan:
    """The checked settings."""
    return plan_of(
        args,
        "pretrain",
        _declared(args),
        may_change=RESUME_OVERRIDES,
        missing=lambda task, settings: None if task.corpus or task.teacher else "teacher to imitate",
    )


def run(args: argparse.Namespace) -> int:
    """The command, from its flags to its run folder: texts, or a teacher if there are neither texts nor a file."""
    plan = _plan(args)
    return _train_on_texts(plan) if plan.task.corpus or plan.settings["data"] is not None else _imitate(plan)


def _train_on_texts(plan: Plan) -> int:
    """Trains next-token prediction on pages of the task's corpus, or of a file."""
    model, vocabulary, described = load_start(plan.origin, plan.task, plan.config.seed)
    model.to(plan.device)  # type: ignore[arg-type]

    def make(split: Split, n: int, seed: int) -> Rows:
        assert plan.task.corpus is not None
        rng = random.Random(f"pretrain/{split}/{seed}")
        return [TextRow(plan.task.corpus(rng)) for _ in range(n)]

    def loss(rows: Rows) -> Tensor:
        return language_loss(model, vocabulary, [row.text for row in rows])

    kept = rows_of(plan, model, vocabulary, TextRow, make)
    write = partial(save_policy, model=model, vocabulary=vocabulary)
    return train(plan, model, write, described, kept, loss, partial(measure_loss, loss))


def _imitate(plan: Plan) -> int:
    """Imitates the task's teacher on new problems at every step; see `fit.imitate`.

    Raises:
        ValueError: If the training loss says that the start is not worth training from.
    """
    model, vocabulary, described = load_start(plan.origin, plan.task, plan.config.seed)
    model.to(plan.device)  # type: ignore[arg-type]
    loss = partial(completion_loss, model, vocabulary)

    def rows(step: int) -> Rows:
        return teacher_rows(plan.task, vocabulary, step, plan.config.batch_size, plan.config.seed)

    def finish() -> Measured:
        measured, text = measure_loss(loss, kept[1])
        last = [row["loss"] for row in plan.folder.history()[-50:]]
        mean, most = sum(last) / len(last), plan.settings["accept"]
        if not mean <= most:
            raise ValueError(
                f"the start is not accepted: its training loss is {mean:.3f}, and should be at most {most:g} (RL from "
                "a start that imitates its teacher badly makes no progress); try another --seed or more --steps, or "
                f"take what is in {plan.folder.path} with --resume --accept {mean + 0.01:.2f}"
            )
        any_row = Recipe(ALGORITHMS["reinforce"], plan.task)  # only its task is used to evaluate
        result = evaluate(model, vocabulary, any_row, n=plan.settings["held_out"])
        text += f"\ntraining loss of the last steps: {mean:.4f}"
        text += "\nheld-out {}: sampled {}, greedy {}".format(measure_of(plan.task), *result.in_words)
        return {**measured, "training_loss": mean, **result.as_json()}, text

    make = partial(demonstrations, plan.task, vocabulary)
    kept = rows_of(plan, model, vocabulary, CompletionRow, make, fresh=True)
    write = partial(save_policy, model=model, vocabulary=vocabulary)
    measure = partial(measure_loss, loss)
    return train(plan, model, write, described, kept, loss, measure, rows=rows, finish=finish)
