"""`reward`: train a reward model on preferences."""

import argparse
from functools import partial
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from rlhf_minimal.cli import fitting
from rlhf_minimal.cli.fitting import Job, Rows
from rlhf_minimal.cli.settings import Setting
from rlhf_minimal.cli.starts import load_start
from rlhf_minimal.models import RewardModel, load_reward_model
from rlhf_minimal.pairwise import PAIRWISE
from rlhf_minimal.tasks import PairRow
from rlhf_minimal.tasks.base import Split
from rlhf_minimal.training.metrics import Metrics
from rlhf_minimal.training.preferences import evaluate_reward_model, preference_loss, sample_pairs

ABOUT = "Train a reward model by Bradley-Terry, on pairs of a policy's samples or on those of a file."
IF_MEMORY_RUNS_OUT = fitting.IF_MEMORY_RUNS_OUT
ABOUT_NORMALIZE = "Whether scores are shifted and scaled to mean 0 and standard deviation 1 on the rows."
SETTINGS = [
    *fitting.settings_for("prompt, chosen and rejected", rows=32_000, held_out=2000, steps=1200, lr=2e-3),
    Setting("normalize", Literal["samples", "none"], "samples", ABOUT_NORMALIZE),
]

add_arguments = partial(fitting.add_arguments, settings=SETTINGS)


class Reward(Job):
    """Trains a reward model on pairs of completions, of which one was preferred."""

    row = PairRow

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


def run(args: argparse.Namespace) -> int:
    """Fits a reward model."""
    return fitting.run(args, Reward, SETTINGS, "reward")
