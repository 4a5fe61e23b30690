"""The checkpoint of a run: all that a learner holds, whole or not at all, and the learner that goes on from it."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from rlhf_minimal.config import Config
from rlhf_minimal.model_files import is_out_of_memory
from rlhf_minimal.models import adapter, load_adapter, load_policy, save_policy
from rlhf_minimal.objective import Algorithm
from rlhf_minimal.optimizer import optimizer_tensors, restore_optimizer
from rlhf_minimal.reward_scaling import RunningScores
from rlhf_minimal.train_state import Learner
from rlhf_minimal.training import checkpoints


def save_learner(learner: Learner, folder: Path, notes: dict[str, Any]) -> None:
    """Writes a checkpoint, whole or not at all.

    Args:
        learner: All that it holds.
        folder: The checkpoint's folder; replaced if it exists.
        notes: Plain values to store with it, such as the names of algorithm and task.
    """
    own: dict[str, Any] = {"step": learner.step, "mean_reward": learner.mean_reward}
    own |= {"kl_factor": learner.kl_factor, "scores": asdict(learner.scores)}
    corrections = adapter(learner.policy)
    weights = {name: module.state_dict() for name, module in _modules(learner).items()} | {"adapter": corrections}
    tensors = {f"{name}.{key}": tensor for name, held in weights.items() for key, tensor in held.items()}
    for name, optimizer in _optimizers(learner).items():
        tensors |= optimizer_tensors(optimizer, name)

    def write(new: Path) -> None:
        save_policy(new, learner.policy, learner.vocabulary)
        checkpoints.save_trainer(new, tensors, {**notes, **own})

    checkpoints.write_folder(folder, write)


def _modules(learner: Learner) -> dict[str, nn.Module]:
    """The models besides the policy that a checkpoint holds, by their names in it."""
    held = {"start": learner.start, "critic": learner.critic}
    if learner.reference is not learner.start and not learner.needs_teacher:
        held["reference"] = learner.reference
    return {name: module for name, module in held.items() if module is not None}


def _optimizers(learner: Learner) -> dict[str, torch.optim.Optimizer]:
    """The optimisers, likewise."""
    both = {"optimizer": learner.optimizer, "critic_optimizer": learner.critic_optimizer}
    return {name: optimizer for name, optimizer in both.items() if optimizer is not None}


def resume_learner(
    folder: Path,
    algorithm: Algorithm,
    config: Config,
    device: str | torch.device,
    critic_start: PreTrainedModel | None = None,
    teacher: PreTrainedModel | None = None,
) -> Learner:
    """The learner that `save_learner` wrote, ready for its next step.

    Args:
        folder: The checkpoint.
        algorithm: As the run began.
        config: Likewise.
        device: Where to compute.
        critic_start: As in `Learner.begin`, if the run began with one; the checkpoint has its
            weights.
        teacher: As in `Learner.begin`, if the run began with one.

    Raises:
        ValueError: If the checkpoint is missing, damaged, or of another algorithm's shape.
    """
    policy, vocabulary = load_policy(folder)
    tensors, notes = checkpoints.load_trainer(folder)
    policy.to(device)  # type: ignore[arg-type]
    learner = Learner.begin(policy, vocabulary, algorithm, config, critic_start, teacher)
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
        for name, module in _modules(learner).items():
            module.load_state_dict(_named(tensors, name))  # with a LoRA the start's weights are the policy's, too
        if config.lora_rank is not None:
            load_adapter(learner.policy, _named(tensors, "adapter"))
        for name, optimizer in _optimizers(learner).items():
            restore_optimizer(optimizer, tensors, name)
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
        if is_out_of_memory(error):
            raise
        reason = " ".join(str(error).split())[:400]  # torch puts the names of weights on lines of their own
        reason = f"trainer.json names no {error}" if isinstance(error, KeyError) else reason
        raise ValueError(f"the checkpoint in {folder} does not fit this algorithm and config: {reason}") from error
    return learner


def _named(tensors: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    return {key.removeprefix(f"{name}."): tensor for key, tensor in tensors.items() if key.startswith(f"{name}.")}
