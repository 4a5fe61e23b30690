r"""More cells of the shape column: rewards that depend on the length."""

import math

import torch
from jaxtyping import Float, Real
from torch import Tensor

from ..functional.checks import check_count, check_group, check_not_negative, check_numbers
from ..functional.shaping import _check


def length_reward(
    rewards: Float[Tensor, " B"], lengths: Real[Tensor, " B"], *, group_size: int, coef: float = 1.0
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
