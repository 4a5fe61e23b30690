"""What a run carries from step to step, and how it is saved and resumed."""

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from rlhf_minimal.models import Critic, TokenizerVocabulary, Vocabulary
from rlhf_minimal.objective import Algorithm
from rlhf_minimal.training import checkpoints
from rlhf_minimal.training.config import Config


@dataclass
class Learner:
    """All that changes while training: what a checkpoint holds and `--resume` restores.

    Attributes:
        policy: The model being trained.
        vocabulary: Its vocabulary.
        start: The policy as it was at the beginning, for the KL that the metrics report.
        reference: What the algorithm's KL terms are measured against; the same object as `start` while frozen.
        optimizer: The policy's.
        critic: Present if the algorithm needs values, with an optimiser of its own.
        critic_optimizer: The critic's.
        mean_reward: Moving average of past rewards, the "ema" baseline.
        step: Steps taken.
    """

    policy: PreTrainedModel
    vocabulary: Vocabulary | TokenizerVocabulary
    start: PreTrainedModel
    reference: PreTrainedModel
    optimizer: torch.optim.Optimizer
    critic: Critic | None = None
    critic_optimizer: torch.optim.Optimizer | None = None
    mean_reward: float = 0.0
    step: int = 0

    @classmethod
    def begin(
        cls,
        policy: PreTrainedModel,
        vocabulary: Vocabulary | TokenizerVocabulary,
        algorithm: Algorithm,
        config: Config,
    ) -> "Learner":
        """A learner at step 0; `policy` will be trained in place."""
        start = copy.deepcopy(policy).requires_grad_(False)
        reference = start if config.reference == "frozen" else copy.deepcopy(start)
        learner = cls(policy, vocabulary, start, reference, _adamw(policy, config.lr))
        if "values" in algorithm.needs:
            learner.critic = Critic(policy).to(policy.device)
            learner.critic_optimizer = _adamw(learner.critic, config.value_lr)
        return learner

    def save(self, folder: Path, notes: dict[str, Any]) -> None:
        """Writes a checkpoint, whole or not at all.

        Args:
            folder: The checkpoint's folder; replaced if it exists.
            notes: Plain values to keep beside it, such as the names of algorithm and task.
        """
        tensors = {f"start.{k}": v for k, v in self.start.state_dict().items()}
        tensors |= checkpoints.optimizer_tensors(self.optimizer, "optimizer")
        if self.reference is not self.start:
            tensors |= {f"reference.{k}": v for k, v in self.reference.state_dict().items()}
        if self.critic is not None and self.critic_optimizer is not None:
            tensors |= {f"critic.{k}": v for k, v in self.critic.state_dict().items()}
            tensors |= checkpoints.optimizer_tensors(self.critic_optimizer, "critic_optimizer")

        def write(new: Path) -> None:
            checkpoints.save_policy(new, self.policy, self.vocabulary)
            checkpoints.save_trainer(new, tensors, {**notes, "step": self.step, "mean_reward": self.mean_reward})

        checkpoints.write_folder(folder, write)

    @classmethod
    def resume(cls, folder: Path, algorithm: Algorithm, config: Config, device: str | torch.device) -> "Learner":
        """The learner that `save` wrote, ready for its next step.

        Raises:
            ValueError: If the checkpoint is missing, damaged, or of another algorithm's shape.
        """
        policy, vocabulary = checkpoints.load_policy(folder)
        tensors, notes = checkpoints.load_trainer(folder)
        if not {"step", "mean_reward"} <= set(notes):
            raise ValueError(f"cannot read the checkpoint in {folder}: trainer.json names no step")
        policy.to(device)  # type: ignore[arg-type]
        learner = cls.begin(policy, vocabulary, algorithm, config)
        learner.step, learner.mean_reward = int(notes["step"]), float(notes["mean_reward"])
        modules: dict[str, nn.Module | None] = {"start": learner.start, "critic": learner.critic}
        if learner.reference is not learner.start:
            modules["reference"] = learner.reference
        try:
            for name, module in modules.items():
                if module is not None:
                    module.load_state_dict(
                        {k.removeprefix(f"{name}."): v for k, v in tensors.items() if k.startswith(f"{name}.")}
                    )
            checkpoints.restore_optimizer(learner.optimizer, tensors, "optimizer")
            if learner.critic_optimizer is not None:
                checkpoints.restore_optimizer(learner.critic_optimizer, tensors, "critic_optimizer")
        except (RuntimeError, ValueError, KeyError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(f"the checkpoint in {folder} does not fit this algorithm and config: {reason}") from error
        return learner


def _adamw(model: nn.Module, lr: float) -> torch.optim.AdamW:
    # No weight decay: it would pull towards zero what the start has learnt, with no reward asking for it.
    return torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)
