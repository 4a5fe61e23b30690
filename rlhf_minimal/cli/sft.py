"""`sft`: supervised fine-tuning."""

import argparse
from functools import partial

from rlhf_minimal.cli.fitting import (
    Measured,
    Plan,
    Rows,
    add_fit_flags,
    demonstrations,
    measure_loss,
    plan_of,
    rows_of,
    score_samples,
    settings_for,
    train,
)
from rlhf_minimal.cli.starts import load_start
from rlhf_minimal.fit import completion_loss
from rlhf_minimal.tasks import CompletionRow
from rlhf_minimal.training import save_policy

SETTINGS = settings_for("prompt and completion, or messages", start="untrained", steps=700)
OOM_HINT = "lower --batch-size"


def add_arguments(sub: argparse.ArgumentParser) -> None:
    """The command's flags."""
    add_fit_flags(sub, SETTINGS)


def _plan(args: argparse.Namespace) -> Plan:
    """The checked settings."""
    return plan_of(args, "sft", SETTINGS, missing=lambda task, settings: None if task.teacher else "teacher to imitate")


def run(args: argparse.Namespace) -> int:
    """The command, from its flags to its run folder."""
    plan = _plan(args)
    model, vocabulary, described = load_start(plan.origin, plan.task, plan.config.seed)
    model.to(plan.device)  # type: ignore[arg-type]
    kept = rows_of(plan, model, vocabulary, CompletionRow, partial(demonstrations, plan.task, vocabulary))
    loss = partial(completion_loss, model, vocabulary)

    def measure(held_out: Rows) -> Measured:
        return measure_loss(loss, held_out)

    def finish() -> Measured:
        measured, text = measure(kept[1])
        if plan.settings["data"] is not None:
            return measured, text  # rows of a file need not belong to the task
        score, sentence, samples = score_samples(plan, model, vocabulary)
        return {**measured, "score": score}, "\n".join([text, sentence, *samples])

    return train(
        plan,
        model,
        lambda folder: save_policy(folder, model, vocabulary),
        described,
        kept,
        loss,
        measure,
        finish=finish,
    )
