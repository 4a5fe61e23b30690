"""`prefer`: learn from preferences without a reward model."""

import argparse
import dataclasses
import math
from functools import partial
from typing import Any

from rlhf_minimal.cli.fitting import (
    Measured,
    Plan,
    Rows,
    add_fit_flags,
    demonstrations,
    plan_of,
    rows_of,
    score_samples,
    settings_for,
    train,
)
from rlhf_minimal.cli.settings import Setting
from rlhf_minimal.cli.starts import load_start
from rlhf_minimal.lab.sampled_rows import sample_pairs
from rlhf_minimal.lab.train_pairs import (
    EncodedPair,
    add_reference_logprobs,
    direct_preference_loss,
    encode_pairs,
    evaluate_pairs,
    sample_rejected,
)
from rlhf_minimal.pairs import PAIRWISE
from rlhf_minimal.tasks import CompletionRow, PairRow, Task
from rlhf_minimal.tasks.base import Split
from rlhf_minimal.training import load_policy, save_policy, write_folder

POLICY_ROWS = [name for name, row in PAIRWISE.items() if row.reference]  # the rows that train a policy

SETTINGS = [
    Setting("algorithm", str, None),
    Setting("beta", float | None, None, "Strength of the KL penalty against the start.", "the row's"),
    *settings_for("prompt, chosen and rejected, or for spin prompt and completion", steps=300, lr=2e-4),
]
OOM_HINT = "lower --batch-size"


def add_arguments(sub: argparse.ArgumentParser) -> None:
    """The command's flags."""
    sub.add_argument("algorithm", choices=POLICY_ROWS, help="A row of the second table (table --pairs).")
    add_fit_flags(sub, SETTINGS)


def _missing(task: Task, settings: dict[str, Any]) -> str | None:
    """A row that samples what it rejects needs a teacher; the others need nothing."""
    beta = settings["beta"]
    if beta is not None and not 0 < beta < math.inf:
        raise ValueError(f"--beta must be above 0; got {beta}")
    sampled = PAIRWISE[settings["algorithm"]].rejected == "own"
    return "teacher to imitate" if sampled and not task.teacher else None


def _plan(args: argparse.Namespace) -> Plan:
    """The checked settings."""
    return plan_of(args, "prefer", SETTINGS, missing=_missing, compares=True)


def run(args: argparse.Namespace) -> int:
    """The command, from its flags to its run folder.

    The reference's log-probs are computed once, before the first step. The run folder keeps the reference under
    `reference/`, from where a resumed run loads it.
    """
    plan = _plan(args)
    settings, task = plan.settings, plan.task
    algorithm = PAIRWISE[settings["algorithm"]]
    if settings["beta"] is not None:
        algorithm = dataclasses.replace(algorithm, loss=partial(algorithm.loss, beta=settings["beta"]))
    sampled = algorithm.rejected == "own"  # whether the rejected completions are samples of the reference
    model, vocabulary, described = load_start(plan.origin, task, plan.config.seed)
    reference = load_policy(plan.folder.reference)[0] if plan.resumed else model  # the same before the first step
    model.to(plan.device), reference.to(plan.device)  # type: ignore[arg-type]

    def make(split: Split, n: int, seed: int) -> Rows:
        if sampled:
            return demonstrations(task, vocabulary, split, n, seed)
        return sample_pairs(model, vocabulary, task, n, split=split, seed=seed)

    def examples_of(rows: Rows, split: Split) -> list[EncodedPair]:
        examples = encode_pairs(rows, vocabulary, sampled=sampled)
        if sampled:
            budget = task.max_new_tokens if settings["data"] is None else None
            examples = sample_rejected(examples, reference, vocabulary, budget, seed=f"{settings['seed']}/{split}")
        return add_reference_logprobs(examples, reference, vocabulary)

    def measure(held_out: Rows) -> Measured:
        quality = evaluate_pairs(algorithm, model, vocabulary, held_out)
        lines = [
            f"{len(held_out)} pairs held out: accuracy {quality['accuracy']:.3f}, loss {quality['loss']:.3f}",
            f"log-ratio to the start in nats: chosen {quality['chosen']:.3f}, rejected {quality['rejected']:.3f}, "
            f"gap {quality['gap']:.3f}",
        ]
        return {"held_out": len(held_out), **quality}, "\n".join(lines)

    def finish() -> Measured:
        measured, text = measure(held_out)
        lines, samples = [text], list[str]()
        if settings["data"] is None:
            for when, policy in (("before", load_policy(plan.folder.reference)[0]), ("after", model)):
                measured[when], sentence, samples = score_samples(plan, policy, vocabulary)
                lines.append(f"{when + ':':<8}{sentence}")
        return measured, "\n".join([*lines, *samples])

    kept = rows_of(plan, model, vocabulary, CompletionRow if sampled else PairRow, make)
    rows, held_out = examples_of(kept[0], "train"), examples_of(kept[1], "held_out")
    return train(
        plan,
        model,
        lambda folder: save_policy(folder, model, vocabulary),
        described,
        kept,
        lambda batch: direct_preference_loss(algorithm, model, vocabulary, batch),
        measure,
        rows=rows,
        held_out=held_out,
        watched=("loss", "accuracy", "gap"),
        before=lambda: write_folder(plan.folder.reference, lambda folder: save_policy(folder, model, vocabulary)),
        finish=finish,
    )
