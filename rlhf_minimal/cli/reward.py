"""`reward`: train a reward model on preferences, or a scorer of steps on labelled steps."""

import argparse
import math
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

from torch import Tensor

from rlhf_minimal.algorithms import ALGORITHMS
from rlhf_minimal.cli import fitting
from rlhf_minimal.cli.fitting import Job, Rows
from rlhf_minimal.cli.settings import Setting
from rlhf_minimal.cli.starts import load_start
from rlhf_minimal.models import RewardModel, load_reward_model
from rlhf_minimal.pairwise import PAIRWISE
from rlhf_minimal.tasks import PairRow, StepRow, Task
from rlhf_minimal.tasks.base import Split
from rlhf_minimal.training import Recipe, StepScorer, load_step_scorer, sample_steps
from rlhf_minimal.training.metrics import Metrics
from rlhf_minimal.training.preferences import evaluate_reward_model, preference_loss, sample_pairs
from rlhf_minimal.training.steps import evaluate_steps, step_loss

ABOUT = (
    "Train a reward model by Bradley-Terry, on pairs of a policy's samples or on those of a file. With --label-steps, "
    "train a process reward model on the steps of samples, for train --step-reward and evaluate --scorer."
)
IF_MEMORY_RUNS_OUT = fitting.IF_MEMORY_RUNS_OUT
ABOUT_LABELS = (
    "Train a scorer of steps, on labels of the task's checker (program), on the share of completions from there that "
    "are right (shepherd) or on whether one of them is (shepherd-hard), or on outcomes alone (outcome)."
)
ABOUT_HEAD = "What scores a step: the log-ratio of its tokens to the start, or a number read at its end."
ABOUT_NORMALIZE = "Whether scores are shifted and scaled to mean 0 and standard deviation 1 on the rows."
SETTINGS = [
    *fitting.settings_for("prompt, chosen and rejected", rows=32_000, held_out=2000, steps=1200, lr=2e-3),
    Setting("normalize", Literal["samples", "none"], "samples", ABOUT_NORMALIZE),
    Setting("label_steps", Literal["none", "program", "shepherd", "shepherd-hard", "outcome"], "none", ABOUT_LABELS),
    Setting("head", Literal["ratio", "scalar"], "ratio", ABOUT_HEAD),
    Setting("beta", float, 10.0, "What a nat of the head ratio is worth."),
    Setting("rollouts", int, 8, "Completions that go on from each step, for the labels of Math-Shepherd."),
]

add_arguments = partial(fitting.add_arguments, settings=SETTINGS)


class Reward(Job):
    """Trains a reward model on pairs of completions, of which one was preferred."""

    row = PairRow
    goes_with: ClassVar = {
        "normalize": ("label_steps", "none"),
        **dict.fromkeys(("head", "beta", "rollouts"), ("label_steps", None)),
    }

    @classmethod
    def for_task(cls, task: Task, settings: dict[str, Any]) -> type[Job]:
        """A scorer of steps, where their labels are asked for."""
        return cls if settings["label_steps"] == "none" else Steps

    def begin(self, start: str, resumed: bool) -> None:
        """Loads the reward model of a resumed run, or makes one from a policy."""
        if resumed:
            self.reward_model, self.described = load_reward_model(start), start
        else:
            self.policy, vocabulary, self.described = load_start(start, self.task, self.settings["seed"])
            self.check_trained()
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
        """The Bradley-Terry loss."""
        return preference_loss(PAIRWISE["bradley_terry"], self.reward_model, rows)

    def watch(self, rows: Rows) -> Metrics:
        """Loss and accuracy on pairs held out."""
        quality = evaluate_reward_model(self.reward_model, rows)
        return {"held_out_loss": quality.loss, "held_out_accuracy": quality.accuracy}

    def finish(self, rows: Rows, held_out: Rows) -> tuple[dict[str, Any], str]:
        """Accuracy, the best possible accuracy, calibration; and the normalisation, which the model stores."""
        quality = evaluate_reward_model(self.reward_model, held_out)
        if self.settings["normalize"] == "samples":
            some = rows[:2000]
            answers = [row.chosen for row in some] + [row.rejected for row in some]
            self.reward_model.normalize([row.prompt for row in some] * 2, answers)
        mean, std = self.reward_model.mean, self.reward_model.std
        measured = {**quality.as_json(), "normalize": {"mean": mean, "std": std}}
        return measured, f"{quality}\nscores: (raw - {mean:.3f}) / {std:.3f}"


class Steps(Job):
    """Trains a scorer of steps: a process reward model."""

    row = StepRow
    shown = ("loss", "held_out_loss", "held_out_auc")

    @classmethod
    def missing(cls, task: Task, settings: dict[str, Any]) -> str | None:
        """Somebody has to say where a step ends."""
        return None if task.steps else "steps"

    def begin(self, start: str, resumed: bool) -> None:
        """Loads the scorer of a resumed run, or makes one from a policy."""
        if resumed:
            self.scorer, self.described = load_step_scorer(start), start
        else:
            self.policy, vocabulary, self.described = load_start(start, self.task, self.settings["seed"])
            self.check_trained()
            head, beta = self.settings["head"], self.settings["beta"]
            self.scorer = StepScorer.from_policy(self.policy, vocabulary, head, beta=beta)
        self.model, self.vocabulary = self.scorer.model, self.scorer.vocabulary

    def write(self, folder: Path) -> None:
        """Writes the scorer's files."""
        self.scorer.save(folder)

    def own_rows(self, split: Split, n: int, seed: int) -> Rows:
        """The policy's samples with labelled steps."""
        self.policy.to(self.model.device)  # type: ignore[arg-type]
        recipe = Recipe(ALGORITHMS["reinforce"], self.task)  # any row of the table: it only samples
        options = {"labels": self.settings["label_steps"], "rollouts": self.settings["rollouts"]}
        return sample_steps(self.policy, self.vocabulary, recipe, n, split=split, seed=seed, **options)

    def loss(self, rows: Rows) -> Tensor:
        """Cross-entropy of the labels."""
        return step_loss(self.scorer, rows)

    def measure(self, rows: Rows) -> Metrics:
        """How well steps are told apart; without an AUC where all are right, or all are wrong."""
        found = evaluate_steps(self.scorer, rows)
        return {name: value for name, value in found.items() if name != "auc" or not math.isnan(value)}

    def watch(self, rows: Rows) -> Metrics:
        """How well steps held out are told apart."""
        return {f"held_out_{name}": value for name, value in self.measure(rows).items()}

    def finish(self, rows: Rows, held_out: Rows) -> tuple[dict[str, Any], str]:
        """The same on all of them."""
        found = self.measure(held_out)
        steps = sum(len(row.steps) for row in held_out)
        told = f"AUC {found['auc']:.3f}" if "auc" in found else "no AUC, since all are right or all are wrong"
        return {"held_out": steps, **found}, f"{steps} steps held out: {told}, loss {found['loss']:.3f}"


def run(args: argparse.Namespace) -> int:
    """Fits a reward model."""
    return fitting.run(args, Reward, SETTINGS, "reward")
