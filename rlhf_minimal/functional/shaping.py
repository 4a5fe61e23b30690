r"""The shape column: what is added to the reward before anything else sees it?

A shape reads [B] rewards, [B] lengths (trained tokens of each completion) and the context that it declares
(`contracts.ShapeCell`), and returns [B] rewards.
"""

import torch
from jaxtyping import Float, Real
from torch import Tensor

from .checks import (
    check_count,
    check_rewards,
    check_share,
    check_tensor,
)


def soft_overlong(
    rewards: Float[Tensor, " B"],
    lengths: Real[Tensor, " B"],
    *,
    budget: int | None,
    cache_fraction: float = 0.2,
) -> Float[Tensor, " B"]:
    r"""A penalty that grows over the last stretch of the budget (:eq:`eq-soft-overlong`), as in DAPO.

    .. math::
        R' = R + \begin{cases} 0 & |o| \le L - C \\ (L - C - |o|)/C & L - C < |o| \le L \\ -1 & |o| > L \end{cases}

    L is the budget and C = cache_fraction L. The penalty begins before the budget is reached
    and grows evenly, where a hard limit would jump from 0 to -1.

    Chapter: dapo. Source: arXiv 2503.14476, eq. 13 (L = 20480, C = 4096, hence the fraction).

    Args:
        rewards: [B].
        lengths: [B] trained tokens.
        budget: L in tokens.
        cache_fraction: C / L, between 0 and 1; 0 = no ramp, only the penalty of 1.

    Returns:
        [B] rewards, lowered by at most 1.

    Raises:
        ValueError: no budget, a fraction outside [0, 1], bad shapes.

    Example:
        >>> soft_overlong(torch.ones(3), torch.tensor([8, 9, 10]), budget=10)
        tensor([1.0000, 0.5000, 0.0000])
    """
    _check(rewards, lengths)
    if budget is None:
        raise ValueError("soft_overlong needs the generation budget in tokens: pass Batch(..., budget=L)")
    check_count(budget=budget)
    check_share(cache_fraction=cache_fraction)
    cache = cache_fraction * budget
    over = lengths.to(rewards.dtype) - (budget - cache)  # tokens past the free part
    ramp = -(over / cache).clamp(0, 1) if cache else -(over > 0).to(rewards.dtype)
    return rewards + ramp


def _check(rewards: Tensor, lengths: Tensor) -> None:
    check_rewards(rewards)
    check_tensor("lengths", lengths)
    # Integers or floats: a float mask sums to floats.
    if lengths.dtype == torch.bool or not ((lengths >= 0) & (lengths == lengths.round())).all():
        raise ValueError(
            f"lengths ({lengths.dtype}) must count trained tokens: whole numbers of at least 0, such as mask.sum(-1)"
        )
    if lengths.shape != rewards.shape:
        raise ValueError(f"lengths {tuple(lengths.shape)} and rewards {tuple(rewards.shape)} must have one shape, [B]")
