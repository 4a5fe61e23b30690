"""`reward`: train a reward model on preferences, or a scorer of steps on labelled steps."""

import argparse
import math
from functools import partial
from typing import Any, Literal

from rlhf_minimal.algorithms import ALGORITHMS
from rlhf_minimal.cli.fitting import Measured, Plan, Rows, add_fit_flags, plan_of, rows_of, settings_for, train
from rlhf_minimal.cli.settings import Setting
from rlhf_minimal.cli.starts import load_start
from rlhf_minimal.fit import reward_model_loss
from rlhf_minimal.lab.process_reward import StepScorer, evaluate_steps, load_step_scorer, sample_steps, step_loss
from rlhf_minimal.lab.reward_model_quality import evaluate_reward_model
from rlhf_minimal.lab.rows import StepRow
from rlhf_minimal.lab.sampled_rows import sample_pairs
from rlhf_minimal.models import RewardModel, load_reward_model
from rlhf_minimal.pairs import PAIRWISE
from rlhf_minimal.tasks import PairRow, Task
from rlhf_minimal.tasks.base import Split
from rlhf_minimal.train import Recipe

ABOUT_LABELS = (
    "Train a scorer of steps, on labels of the task's checker (program), on the share of completions from there that "
    "are right (shepherd) or on whether one of them is (shepherd-hard), or on outcomes alone (outcome)."
)
ABOUT_HEAD = "What scores a step: the log-ratio of its tokens to the start, or a number read at its end."
ABOUT_NORMALIZE = "Whether scores are shifted and scaled to mean 0 and standard deviation 1 on the rows."
SETTINGS = [
    *settings_for("prompt, chosen and rejected", rows=32_000, held_out=2000, steps=1200, lr=2e-3),
    Setting("normalize", Literal["samples", "none"], "samples", ABOUT_NORMALIZE),
    Setting("label_steps", Literal["none", "program", "shepherd", "shepherd-hard", "outcome"], "none", ABOUT_LABELS),
    Setting("head", Literal["ratio", "scalar"], "ratio", ABOUT_HEAD),
    Setting("beta", float, 10.0, "What a nat of the head ratio is worth."),
    Setting("rollouts", int, 8, "Completions that go on from each step, for the labels of Math-Shepherd."),
]
FLAG_DEPENDENCIES = {
    "normalize": ("label_steps", "none"),
    **dict.fromkeys(("head", "beta", "rollouts"), ("label_steps", None)),
}
OOM_HINT = "lower --batch-size"


def add_arguments(sub: argparse.ArgumentParser) -> None:
    """The command's flags."""
    add_fit_flags(sub, SETTINGS)


def _missing(task: Task, settings: dict[str, Any]) -> str | None:
    """For labels of steps, somebody has to say where a step ends."""
    return None if settings["label_steps"] == "none" or task.steps else "steps"


def _plan(args: argparse.Namespace) -> Plan:
    """The checked settings."""
    return plan_of(args, "reward", SETTINGS, goes_with=FLAG_DEPENDENCIES, missing=_missing, compares=True)


def run(args: argparse.Namespace) -> int:
    """The command, from its flags to its run folder."""
    plan = _plan(args)
    return _train_reward_model(plan) if plan.settings["label_steps"] == "none" else _train_step_scorer(plan)


def _train_reward_model(plan: Plan) -> int:
    """Trains a reward model on pairs of completions, of which one was preferred."""
    policy, described = None, plan.origin
    if plan.resumed:
        reward_model = load_reward_model(plan.origin)
    else:
        policy, vocabulary, described = load_start(plan.origin, plan.task, plan.config.seed)
        reward_model = RewardModel.from_policy(policy, vocabulary, seed=plan.config.seed)
        policy.to(plan.device)  # type: ignore[arg-type]
    reward_model.model.to(plan.device)  # type: ignore[arg-type]

    def make(split: Split, n: int, seed: int) -> Rows:
        assert policy is not None  # a resumed run has kept its rows
        return sample_pairs(policy, reward_model.vocabulary, plan.task, n, split=split, seed=seed)

    def measure(held_out: Rows) -> Measured:
        quality = evaluate_reward_model(reward_model, held_out)
        return quality.as_json(), str(quality)

    def finish() -> Measured:
        measured, text = measure(kept[1])
        if plan.settings["normalize"] == "samples":  # the model stores what normalises it
            pairs = kept[0][:2000]
            completions = [row.chosen for row in pairs] + [row.rejected for row in pairs]
            reward_model.normalize([row.prompt for row in pairs] * 2, completions)
        mean, std = reward_model.mean, reward_model.std
        return {**measured, "normalize": {"mean": mean, "std": std}}, f"{text}\nscores: (raw - {mean:.3f}) / {std:.3f}"

    kept = rows_of(plan, reward_model.model, reward_model.vocabulary, PairRow, make)
    loss = partial(reward_model_loss, PAIRWISE["bradley_terry"], reward_model)
    options: dict[str, Any] = {"watched": ("loss", "accuracy"), "finish": finish}
    return train(plan, reward_model.model, reward_model.save, described, kept, loss, measure, **options)


def _train_step_scorer(plan: Plan) -> int:
    """Trains a scorer of steps: a process reward model."""
    policy, described, settings = None, plan.origin, plan.settings
    if plan.resumed:
        scorer = load_step_scorer(plan.origin)
    else:
        policy, vocabulary, described = load_start(plan.origin, plan.task, plan.config.seed)
        scorer = StepScorer.from_policy(policy, vocabulary, settings["head"], beta=settings["beta"])
        policy.to(plan.device)  # type: ignore[arg-type]
    scorer.model.to(plan.device)  # type: ignore[arg-type]

    def make(split: Split, n: int, seed: int) -> Rows:
        assert policy is not None  # a resumed run has kept its rows
        recipe = Recipe(ALGORITHMS["reinforce"], plan.task)  # any row of the table: it only samples
        options = {"labels": settings["label_steps"], "rollouts": settings["rollouts"]}
        return sample_steps(policy, scorer.vocabulary, recipe, n, split=split, seed=seed, **options)

    def measure(held_out: Rows) -> Measured:
        steps, quality = sum(len(row.steps) for row in held_out), evaluate_steps(scorer, held_out)
        separated = f"AUC {quality['auc']:.3f}"
        if math.isnan(quality["auc"]):
            del quality["auc"]
            separated = "no AUC, since all are right or all are wrong"
        return {"held_out": steps, **quality}, f"{steps} steps held out: {separated}, loss {quality['loss']:.3f}"

    kept = rows_of(plan, scorer.model, scorer.vocabulary, StepRow, make)
    loss = partial(step_loss, scorer)
    return train(plan, scorer.model, scorer.save, described, kept, loss, measure, watched=("loss", "auc"))
