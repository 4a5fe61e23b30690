"""`reward`: train a reward model on preferences, or a scorer of steps on labelled steps."""

import math
from pathlib import Path
from typing import Any, ClassVar, Literal

from torch import Tensor

from rlhf_minimal.algorithms import ALGORITHMS
from rlhf_minimal.cli.fitting import Job, Rows, settings_for
from rlhf_minimal.cli.settings import Setting
from rlhf_minimal.cli.starts import load_start
from rlhf_minimal.models import RewardModel, TokenizerVocabulary, Vocabulary, load_reward_model
from rlhf_minimal.pairs import PAIRWISE
from rlhf_minimal.tasks import PairRow, StepRow, Task
from rlhf_minimal.tasks.base import Split
from rlhf_minimal.training import Recipe, StepScorer, load_step_scorer, sample_steps
from rlhf_minimal.training.preferences import evaluate_reward_model, preference_loss, sample_pairs
from rlhf_minimal.training.steps import evaluate_steps, step_loss

ABOUT_LABELS = (
    "Train a scorer of steps, on labels of the task's checker (program), on the share of completions from there that "
    "are right (shepherd) or on whether one of them is (shepherd-hard), or on outcomes alone (outcome)."
)
ABOUT_HEAD = "What scores a step: the log-ratio of its tokens to the start, or a number read at its end."
ABOUT_NORMALIZE = "Whether scores are shifted and scaled to mean 0 and standard deviation 1 on the rows."


class Reward(Job):
    """Trains a reward model on pairs of completions, of which one was preferred."""

    ABOUT = (
        "Train a reward model by Bradley-Terry, on pairs of a policy's samples or on those of a file. With "
        "--label-steps, train a process reward model on the steps of samples, for train --step-reward and evaluate "
        "--scorer."
    )
    SETTINGS: ClassVar = [
        *settings_for("prompt, chosen and rejected", rows=32_000, held_out=2000, steps=1200, lr=2e-3),
        Setting("normalize", Literal["samples", "none"], "samples", ABOUT_NORMALIZE),
        Setting(
            "label_steps", Literal["none", "program", "shepherd", "shepherd-hard", "outcome"], "none", ABOUT_LABELS
        ),
        Setting("head", Literal["ratio", "scalar"], "ratio", ABOUT_HEAD),
        Setting("beta", float, 10.0, "What a nat of the head ratio is worth."),
        Setting("rollouts", int, 8, "Completions that go on from each step, for the labels of Math-Shepherd."),
    ]
    GOES_WITH: ClassVar = {
        "normalize": ("label_steps", "none"),
        **dict.fromkeys(("head", "beta", "rollouts"), ("label_steps", None)),
    }
    row: type = PairRow
    watched = ("loss", "accuracy")
    compares = True
    scorer: Any  # what is trained: a reward model, or a scorer of steps

    @classmethod
    def for_task(cls, task: Task, settings: dict[str, Any]) -> type[Job]:
        """A scorer of steps, where their labels are asked for."""
        return cls if settings["label_steps"] == "none" else Steps

    def begin(self, start: str, resumed: bool) -> None:
        """Loads what a resumed run has trained, or makes it from a policy."""
        if resumed:
            self.scorer, self.described = self.load(start), start
        else:
            self.policy, vocabulary, self.described = load_start(start, self.task, self.settings["seed"])
            self.scorer = self.new(vocabulary)
        self.model, self.vocabulary = self.scorer.model, self.scorer.vocabulary

    def load(self, folder: str) -> Any:
        """The reward model in a folder."""
        return load_reward_model(folder)

    def new(self, vocabulary: Vocabulary | TokenizerVocabulary) -> Any:
        """A reward model that begins with the policy."""
        return RewardModel.from_policy(self.policy, vocabulary, seed=self.settings["seed"])

    def write(self, folder: Path) -> None:
        """Writes the model's files."""
        self.scorer.save(folder)

    def own_rows(self, split: Split, n: int, seed: int) -> Rows:
        """Pairs of the policy's samples with noisy labels."""
        self.policy.to(self.model.device)  # type: ignore[arg-type]
        return sample_pairs(self.policy, self.vocabulary, self.task, n, split=split, seed=seed)

    def loss(self, rows: Rows) -> Tensor:
        """The Bradley-Terry loss."""
        return preference_loss(PAIRWISE["bradley_terry"], self.scorer, rows)

    def measure(self, held_out: Rows) -> tuple[dict[str, Any], str]:
        """Accuracy, the best possible accuracy, and calibration."""
        quality = evaluate_reward_model(self.scorer, held_out)
        return quality.as_json(), str(quality)

    def finish(self, rows: Rows, held_out: Rows) -> tuple[dict[str, Any], str]:
        """Computes the normalisation as well, which the model stores."""
        measured, text = self.measure(held_out)
        if self.settings["normalize"] == "samples":
            some = rows[:2000]
            answers = [row.chosen for row in some] + [row.rejected for row in some]
            self.scorer.normalize([row.prompt for row in some] * 2, answers)
        mean, std = self.scorer.mean, self.scorer.std
        return {**measured, "normalize": {"mean": mean, "std": std}}, f"{text}\nscores: (raw - {mean:.3f}) / {std:.3f}"


class Steps(Reward):
    """Trains a scorer of steps: a process reward model."""

    row = StepRow
    watched = ("loss", "auc")

    @classmethod
    def missing(cls, task: Task, settings: dict[str, Any]) -> str | None:
        """Somebody has to say where a step ends."""
        return None if task.steps else "steps"

    def load(self, folder: str) -> Any:
        """The scorer in a folder."""
        return load_step_scorer(folder)

    def new(self, vocabulary: Vocabulary | TokenizerVocabulary) -> Any:
        """A scorer that begins with the policy."""
        return StepScorer.from_policy(self.policy, vocabulary, self.settings["head"], beta=self.settings["beta"])

    def own_rows(self, split: Split, n: int, seed: int) -> Rows:
        """The policy's samples with labelled steps."""
        self.policy.to(self.model.device)  # type: ignore[arg-type]
        recipe = Recipe(ALGORITHMS["reinforce"], self.task)  # any row of the table: it only samples
        options = {"labels": self.settings["label_steps"], "rollouts": self.settings["rollouts"]}
        return sample_steps(self.policy, self.vocabulary, recipe, n, split=split, seed=seed, **options)

    def loss(self, rows: Rows) -> Tensor:
        """Cross-entropy of the labels."""
        return step_loss(self.scorer, rows)

    def measure(self, held_out: Rows) -> tuple[dict[str, Any], str]:
        """How well steps are told apart; there is no AUC where all of them are right, or all wrong."""
        steps, found = sum(len(row.steps) for row in held_out), evaluate_steps(self.scorer, held_out)
        told = f"AUC {found['auc']:.3f}"
        if math.isnan(found["auc"]):
            del found["auc"]
            told = "no AUC, since all are right or all are wrong"
        return {"held_out": steps, **found}, f"{steps} steps held out: {told}, loss {found['loss']:.3f}"

    def finish(self, rows: Rows, held_out: Rows) -> tuple[dict[str, Any], str]:
        """The same: the scores of steps are log-odds, and are not normalised."""
        return self.measure(held_out)
