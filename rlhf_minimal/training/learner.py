"""What a run carries from step to step, and how it is saved and resumed."""

import copy
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from rlhf_minimal.models import Critic, TokenizerVocabulary, Vocabulary
from rlhf_minimal.models.folder import is_out_of_memory
from rlhf_minimal.objective import Algorithm
from rlhf_minimal.training import checkpoints
from rlhf_minimal.training.config import Config
from rlhf_minimal.training.scores import RunningScores


@dataclass
class Learner:
    """All that changes while training: what a checkpoint holds and `--resume` restores.

    Attributes:
        policy: The model being trained.
        vocabulary: Its vocabulary.
        start: The policy as it was at the beginning, for the KL that the metrics report.
        reference: What the algorithm's KL terms are measured against; the same object as `start` while frozen.
        optimizer: The policy's, and the value head's if the trunk is shared.
        critic: Present if the algorithm needs values.
        critic_optimizer: The critic's; None if the trunk is shared.
        mean_reward: Moving average of past rewards, the "ema" baseline.
        kl_factor: What an adaptive KL controller multiplies the row's coefficients by; 1 while they are fixed.
        scores: Mean and spread of all rewards so far, for `score_scaling="running"`.
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
    kl_factor: float = 1.0
    scores: RunningScores = field(default_factory=RunningScores)
    step: int = 0

    @classmethod
    def begin(
        cls,
        policy: PreTrainedModel,
        vocabulary: Vocabulary | TokenizerVocabulary,
        algorithm: Algorithm,
        config: Config,
    ) -> "Learner":
        """A learner at step 0; `policy` will be trained in place.

        Raises:
            ValueError: If the config asks of the algorithm what it does not have (`Config.check_fits`).
        """
        config.check_fits(algorithm)
        start = copy.deepcopy(policy).requires_grad_(False)
        reference = start if config.reference == "frozen" else copy.deepcopy(start)
        critic, critic_optimizer, trained = None, None, list(policy.parameters())
        if "values" in algorithm.needs:
            shared = config.critic == "shared"
            critic = Critic(policy, shared=shared, init=config.value_head_init, seed=config.seed).to(policy.device)
            if shared:
                trained += critic.parameters()
            else:
                critic_optimizer = _adamw(critic.parameters(), config.value_lr, config)
        optimizer = _adamw(trained, config.lr, config)
        return cls(policy, vocabulary, start, reference, optimizer, critic, critic_optimizer)

    def save(self, folder: Path, notes: dict[str, Any]) -> None:
        """Writes a checkpoint, whole or not at all.

        Args:
            folder: The checkpoint's folder; replaced if it exists.
            notes: Plain values to keep beside it, such as the names of algorithm and task.
        """
        own: dict[str, Any] = {"step": self.step, "mean_reward": self.mean_reward}
        own |= {"kl_factor": self.kl_factor, "scores": asdict(self.scores)}
        tensors = {f"start.{k}": v for k, v in self.start.state_dict().items()}
        tensors |= checkpoints.optimizer_tensors(self.optimizer, "optimizer")
        if self.reference is not self.start:
            tensors |= {f"reference.{k}": v for k, v in self.reference.state_dict().items()}
        if self.critic is not None:
            tensors |= {f"critic.{k}": v for k, v in self.critic.state_dict().items()}
        if self.critic_optimizer is not None:
            tensors |= checkpoints.optimizer_tensors(self.critic_optimizer, "critic_optimizer")

        def write(new: Path) -> None:
            checkpoints.save_policy(new, self.policy, self.vocabulary)
            checkpoints.save_trainer(new, tensors, {**notes, **own})

        checkpoints.write_folder(folder, write)

    @classmethod
    def resume(cls, folder: Path, algorithm: Algorithm, config: Config, device: str | torch.device) -> "Learner":
        """The learner that `save` wrote, ready for its next step.

        Raises:
            ValueError: If the checkpoint is missing, damaged, or of another algorithm's shape.
        """
        policy, vocabulary = checkpoints.load_policy(folder)
        tensors, notes = checkpoints.load_trainer(folder)
        policy.to(device)  # type: ignore[arg-type]
        learner = cls.begin(policy, vocabulary, algorithm, config)
        modules: dict[str, nn.Module | None] = {"start": learner.start, "critic": learner.critic}
        if learner.reference is not learner.start:
            modules["reference"] = learner.reference
        try:
            learner.step = checkpoints.number(notes, "step", int, least=0)
            learner.mean_reward = checkpoints.number(notes, "mean_reward", float)
            learner.kl_factor = checkpoints.number(notes, "kl_factor", float)
            seen = notes["scores"]
            learner.scores = RunningScores(
                checkpoints.number(seen, "count", int, least=0),
                checkpoints.number(seen, "mean", float),
                checkpoints.number(seen, "squares", float, least=0),
            )
            for name, module in modules.items():
                if module is not None:
                    module.load_state_dict(
                        {k.removeprefix(f"{name}."): v for k, v in tensors.items() if k.startswith(f"{name}.")}
                    )
            checkpoints.restore_optimizer(learner.optimizer, tensors, "optimizer")
            if learner.critic_optimizer is not None:
                checkpoints.restore_optimizer(learner.critic_optimizer, tensors, "critic_optimizer")
        except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
            if is_out_of_memory(error):
                raise
            reason = f"trainer.json names no {error}" if isinstance(error, KeyError) else str(error).splitlines()[0]
            raise ValueError(f"the checkpoint in {folder} does not fit this algorithm and config: {reason}") from error
        return learner


def _adamw(parameters: Iterable[nn.Parameter], lr: float, config: Config) -> torch.optim.AdamW:
    # No weight decay: it would pull towards zero what the start has learnt, with no reward asking for it.
    return torch.optim.AdamW(parameters, lr=lr, eps=config.adam_eps, weight_decay=0.0)
