"""What stays the same throughout a run: the numbers, and the recipe that puts them beside an algorithm and a task."""

from dataclasses import dataclass
from typing import Literal

from rlhf_minimal.objective import Algorithm
from rlhf_minimal.tasks import RewardFunction, Task, verifier_reward


@dataclass(frozen=True)
class Config:
    """Settings of the online loop. The defaults take the shipped start to nine tenths in under a minute.

    Args:
        steps: Training steps: each samples once and updates `epochs` x `minibatches` times.
        prompts: Problems per step, P.
        group_size: Completions per problem, G.
        epochs: Passes over a step's samples.
        minibatches: Optimiser steps per pass.
        micro_batches: Forward-backward pieces per optimiser step; saves memory, cannot change the result.
        lr: AdamW's learning rate for the policy; 2.5e-3 destroys the tiny model, 1e-6 is usual at a billion.
        value_lr: The same for the critic, where the algorithm needs one.
        value_clip: Clip range of the value loss; None (the default) for none.
        grad_clip: The gradient's norm is clipped here.
        temperature: Of the sampler; the trained log-probs include it.
        max_new_tokens: Token budget of a completion; None takes the task's.
        reference: What KL terms are measured against: the start `"frozen"`; the policy as it was at the last
            multiple of `refresh_every` steps (`"refresh"`, iterative GRPO); or its moving average (`"ema"`).
        refresh_every: Steps between refreshes.
        ema_decay: Weight of the past in the moving average, per step.
        baseline: For algorithms that take a given baseline: the mean of past rewards (`"ema"`), or the reward of
            the greedy completion of the same prompt (`"greedy"`).
        baseline_decay: Weight of the past in that mean, per step.
        max_refills: Extra rounds of sampling to replace groups that the algorithm filters out.
        seed: Decides everything random: problems, samples, the order of minibatches.

    Raises:
        ValueError: If a number is out of its range; the message names it.
    """

    steps: int = 200
    prompts: int = 32
    group_size: int = 16
    epochs: int = 1
    minibatches: int = 1
    micro_batches: int = 1
    lr: float = 8e-4
    value_lr: float = 8e-4
    value_clip: float | None = None
    grad_clip: float = 1.0
    temperature: float = 1.0
    max_new_tokens: int | None = None
    reference: Literal["frozen", "refresh", "ema"] = "frozen"
    refresh_every: int = 50
    ema_decay: float = 0.95
    baseline: Literal["ema", "greedy"] = "ema"
    baseline_decay: float = 0.9
    max_refills: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "prompts", "group_size", "epochs", "minibatches", "micro_batches", "refresh_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}")
        for name in ("lr", "value_lr", "grad_clip", "temperature"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0; got {getattr(self, name)}")
        for name in ("ema_decay", "baseline_decay"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 0 and below 1; got {getattr(self, name)}")
        if self.max_new_tokens is not None and self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1; got {self.max_new_tokens}")
        if self.max_refills < 0:
            raise ValueError(f"max_refills must be at least 0; got {self.max_refills}")
        if self.reference not in ("frozen", "refresh", "ema"):
            raise ValueError(f"reference must be frozen, refresh or ema; got {self.reference!r}")
        if self.baseline not in ("ema", "greedy"):
            raise ValueError(f"baseline must be ema or greedy; got {self.baseline!r}")
        if self.value_clip is not None and not self.value_clip > 0:
            raise ValueError(f"value_clip must be above 0, or None for no clip; got {self.value_clip}")
        rows = self.prompts * self.group_size
        if self.minibatches * self.micro_batches > rows:
            raise ValueError(
                f"{rows} completions a step cannot be cut into {self.minibatches} minibatches x "
                f"{self.micro_batches} micro-batches"
            )


@dataclass(frozen=True)
class Recipe:
    """Everything that stays fixed while a `Learner` changes: which objective, on what, for which reward, how much.

    Args:
        algorithm: A row of the table, or a variant of one.
        task: Problems and their verifier.
        config: The numbers.
        reward: What to train for, in TRL's calling form (see `tasks.rewards`); None takes the task's own verifier.

    Example:
        >>> from rlhf_minimal import ALGORITHMS
        >>> from rlhf_minimal.tasks import get_task
        >>> Recipe(ALGORITHMS["grpo"], get_task("addition")).budget
        8
    """

    algorithm: Algorithm
    task: Task
    config: Config = Config()
    reward: RewardFunction | None = None

    @property
    def reward_function(self) -> RewardFunction:
        """The reward that is trained for."""
        return self.reward or verifier_reward(self.task)

    @property
    def budget(self) -> int:
        """Tokens a completion is allowed."""
        return self.config.max_new_tokens or self.task.max_new_tokens
