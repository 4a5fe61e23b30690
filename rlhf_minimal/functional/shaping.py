r"""The shape column: what is added to the reward before anything else sees it?

A shape reads [B] rewards, [B] lengths (trained tokens of each completion) and the context that it declares
(`contracts.ShapeCell`), and returns [B] rewards.
"""

import math

import torch
from jaxtyping import Float, Real
from torch import Tensor

from .checks import (
    check_count,
    check_group,
    check_not_negative,
    check_numbers,
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


def length_reward(
    rewards: Float[Tensor, " B"],
    lengths: Real[Tensor, " B"],
    *,
    group_size: int,
    coef: float = 1.0,
) -> Float[Tensor, " B"]:
    r"""Within a group shorter is better, but a wrong answer gets no bonus (:eq:`eq-length-reward`), as in Kimi k1.5.

    .. math:: \lambda_i = \tfrac12 - \frac{|o_i| - \min_j |o_j|}{\max_j |o_j| - \min_j |o_j|}, \qquad
        R'_i = R_i + c \cdot \begin{cases} \lambda_i & R_i > 0 \\ \min(0, \lambda_i) & \text{otherwise} \end{cases}

    Chapter: kimi. Source: Kimi k1.5, arXiv 2501.12599, section 2.3.3.

    Args:
        rewards: [B], above 0 = correct.
        lengths: [B] trained tokens.
        group_size: G, completions a prompt.
        coef: weight c of the length term.

    Returns:
        [B] rewards; unchanged in a group of one length.

    Raises:
        ValueError: groups that do not divide, bad shapes, a negative weight.

    Example:
        >>> length_reward(torch.tensor([1.0, 1.0, 0.0]), torch.tensor([2, 4, 2]), group_size=3)
        tensor([1.5000, 0.5000, 0.0000])
    """
    _check(rewards, lengths)
    check_group(len(rewards), group_size)
    check_not_negative(coef=coef)
    length = lengths.to(rewards.dtype).view(-1, group_size)  # [P, G]
    shortest, longest = length.amin(-1, keepdim=True), length.amax(-1, keepdim=True)
    spread = longest - shortest
    bonus = torch.where(spread > 0, 0.5 - (length - shortest) / spread, 0.0).view(-1)  # [B]
    return rewards + coef * torch.where(rewards > 0, bonus, bonus.clamp(max=0))


def cosine(
    rewards: Float[Tensor, " B"],
    lengths: Real[Tensor, " B"],
    *,
    budget: int | None,
    right_short: float = 1.0,
    right_long: float = 0.5,
    wrong_short: float = -1.0,
    wrong_long: float = -0.5,
) -> Float[Tensor, " B"]:
    r"""A reward by correctness and length, from one value to another along a cosine (:eq:`eq-cosine`).

    .. math::
        R' = v_{long} + \tfrac12 (v_{short} - v_{long}) \big(1 + \cos(\pi \min(|o| / L, 1))\big), \qquad
        v = \begin{cases} v^{right} & R > 0 \\ v^{wrong} & \text{otherwise} \end{cases}

    It takes the reward's place: only its sign is read. With the defaults a right answer is better short, and a wrong
    one better long, since more thought might still help. The cosine is flat at both ends.

    Chapter: dapo. Source: Yeo et al., arXiv 2502.03373, appendix C.1; TRL's `get_cosine_scaled_reward`.

    Args:
        rewards: [B], above 0 = correct.
        lengths: [B] trained tokens.
        budget: L in tokens; longer completions get what those of length L get.
        right_short: reward of a right answer of length 0.
        right_long: of a right one at the budget.
        wrong_short: of a wrong answer of length 0.
        wrong_long: of a wrong one at the budget.

    Returns:
        [B] rewards.

    Raises:
        ValueError: no budget, a value that is not finite, bad shapes.

    Example:
        >>> cosine(torch.tensor([1.0, 0.0]), torch.tensor([50, 50]), budget=100)
        tensor([ 0.7500, -0.7500])
    """
    _check(rewards, lengths)
    if budget is None:
        raise ValueError("cosine needs the generation budget in tokens: pass Batch(..., budget=L)")
    check_count(budget=budget)
    check_numbers(right_short=right_short, right_long=right_long, wrong_short=wrong_short, wrong_long=wrong_long)
    share = 0.5 * (1 + torch.cos(math.pi * (lengths.to(rewards.dtype) / budget).clamp(max=1)))  # 1 short, 0 long
    right = right_long + (right_short - right_long) * share
    return torch.where(rewards > 0, right, wrong_long + (wrong_short - wrong_long) * share)


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
