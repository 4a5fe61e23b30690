"""Rewards before training: standardised, clipped, and reduced for completions that did not end.

A reward model's scores have no natural unit. Other settings of PPO depend on that unit: a KL coefficient is
in rewards per nat, a value clip in rewards, and a critic that starts at zero first has to reach the scores.
Standardising gives scores the unit in which those settings are usually quoted. What is logged as `reward` is the score
itself, before any of this.
"""

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from rlhf_minimal.config import Config


@dataclass
class RunningScores:
    """Count, mean and spread of all scores so far, batch after batch (Chan, Golub and LeVeque's update).

    Attributes:
        count: Scores seen.
        mean: Their mean.
        squares: Sum of their squared distances from it.

    Example:
        >>> import torch
        >>> seen = RunningScores()
        >>> for batch in (torch.tensor([1.0, 2.0]), torch.tensor([3.0, 6.0])):
        ...     seen.add(batch)
        >>> seen.mean, round(seen.std, 3)
        (3.0, 2.16)
    """

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, scores: Float[Tensor, " B"]) -> None:
        """Takes in one batch."""
        scores = scores.double()
        n, mean = len(scores), scores.mean().item()
        total, step = self.count + n, mean - self.mean
        self.squares += ((scores - mean) ** 2).sum().item() + step**2 * self.count * n / total
        self.mean += step * n / total
        self.count = total

    @property
    def std(self) -> float:
        """Sample standard deviation; 0 before there are two scores."""
        return (self.squares / (self.count - 1)) ** 0.5 if self.count > 1 else 0.0


def scale_rewards(
    rewards: Float[Tensor, " B"], truncated: Bool[Tensor, " B"], seen: RunningScores, config: Config
) -> Float[Tensor, " B"]:
    """The rewards that a step trains for, from those that were given.

    In this order: `score_scaling` subtracts a mean and divides by a standard deviation, `score_clip` bounds the
    result, and `missing_eos_penalty` is subtracted from truncated completions. So the penalty has the unit of the
    scaled rewards, and the clip does not reduce it. Scores without any spread are only centred.

    Papers: running scale and clip, arXiv 2307.04964, section 5.3; the penalty, arXiv 2403.17031 (as a fixed score
    there), in TRL's subtracted form.

    Args:
        rewards: [B] as given.
        truncated: [B] True where the budget ran out before the end-of-sequence token.
        seen: All scores so far, this step's included; read if `score_scaling` is "running".
        config: Its three settings.

    Returns:
        [B] rewards to train for; the given tensor itself where nothing is switched on.

    Example:
        >>> import torch
        >>> ended = torch.zeros(3, dtype=torch.bool)
        >>> config = Config(score_scaling="batch", score_clip=0.5)
        >>> scale_rewards(torch.tensor([1.0, 2.0, 3.0]), ended, RunningScores(), config)
        tensor([-0.5000,  0.0000,  0.5000])
    """
    if config.score_scaling != "none":
        if config.score_scaling == "batch":
            seen = RunningScores()
            seen.add(rewards)
        rewards = (rewards - seen.mean) / (seen.std or 1.0)
    if config.score_clip is not None:
        rewards = rewards.clamp(-config.score_clip, config.score_clip)
    if config.missing_eos_penalty:
        rewards = rewards - config.missing_eos_penalty * truncated.to(rewards.dtype)
    return rewards
