r"""The advantage column: who gets the credit? And the normalize column: is it whitened over the batch?

Every cell takes token rewards [B, T], the mask and the context that it declares (`contracts.AdvantageCell`), and
returns [B, T], without gradient. A cell with one number per sequence gives it to each of the sequence's tokens.
"""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from .checks import (
    check,
    check_ddof,
    check_fits,
    check_group,
    check_mask,
    check_not_negative,
    check_rows,
    check_share,
)
from .masked import last_token, masked_mean, masked_var, sequence_sum, zero_outside


def gae(
    token_rewards: Float[Tensor, "B T"],
    mask: Shaped[Tensor, "B T"],
    *,
    values: Float[Tensor, "B T"] | None,
    gamma: float = 1.0,
    lam: float = 0.95,
) -> Float[Tensor, "B T"]:
    r"""Generalized advantage estimation (:eq:`eq-gae`).

    .. math:: \delta_t = r_t + \gamma V_{t+1} - V_t, \qquad A_t = \delta_t + \gamma\lambda A_{t+1}

    With lam = 0 the critic's next value stands for all later rewards; with lam = 1 only the rewards themselves count.
    Untrained tokens in between (a tool's output) are skipped: t + 1 is the next trained token.

    Chapter: gae. Source: arXiv 1506.02438, eq. 16.

    Args:
        values: [B, T], the critic's V before each token is chosen.
        gamma: discount, 1 for language.
        lam: lambda, usually 0.95 to 1.

    Returns:
        [B, T] advantages; add the values for the critic's targets.

    Raises:
        ValueError: no values, gamma or lam outside [0, 1].

    Example:
        >>> mask = torch.ones(1, 2)
        >>> gae(torch.tensor([[0.0, 1.0]]), mask, values=torch.tensor([[0.5, 0.5]]), lam=1.0)
        tensor([[0.5000, 0.5000]])
    """
    if values is None:
        raise ValueError("gae needs a critic: pass Batch(..., values=V), one value before each completion token")
    check(mask, token_rewards=token_rewards, values=values)
    check_share(gamma=gamma, lam=lam)
    return _gae(token_rewards, mask, values, gamma, lam)


def _gae(token_rewards: Tensor, mask: Tensor, values: Tensor, gamma: float, lam: float | Tensor) -> Tensor:
    """GAE with one lambda, or with one a row [B]."""
    r, v = zero_outside(token_rewards, mask), zero_outside(values, mask)
    next_value = next_advantage = torch.zeros_like(r[:, 0])
    columns = []
    for t in reversed(range(r.shape[1])):
        trained = mask[:, t] != 0
        delta = r[:, t] + gamma * next_value - v[:, t]
        advantage = delta + gamma * lam * next_advantage
        next_value = torch.where(trained, v[:, t], next_value)
        next_advantage = torch.where(trained, advantage, next_advantage)
        columns.append(advantage)
    return zero_outside(torch.stack(columns[::-1], dim=1), mask)


def returns_to_go(
    token_rewards: Float[Tensor, "B T"],
    mask: Shaped[Tensor, "B T"],
    *,
    gamma: float = 1.0,
) -> Float[Tensor, "B T"]:
    r"""The sum of this and all later rewards (:eq:`eq-returns-to-go`): REINFORCE without a baseline.

    .. math:: A_t = \sum_{l \ge 0} \gamma^l r_{t+l}

    A token has no influence on rewards earned before it.

    Chapter: policy-gradients. Source: Williams 1992; REINFORCE++, arXiv 2501.03262.

    Args:
        mask: [B, T], 1 on trained tokens; untrained ones in between are skipped.
        gamma: discount, 1 for language.

    Raises:
        ValueError: gamma outside [0, 1].

    Example:
        >>> returns_to_go(torch.tensor([[0.5, 0.0, 1.0]]), torch.ones(1, 3))
        tensor([[1.5000, 1.0000, 1.0000]])
    """
    check(mask, token_rewards=token_rewards)
    check_share(gamma=gamma)
    r = zero_outside(token_rewards, mask)
    to_go = torch.zeros_like(r[:, 0])
    columns = []
    for t in reversed(range(r.shape[1])):
        to_go = torch.where(mask[:, t] != 0, r[:, t] + gamma * to_go, to_go)
        columns.append(to_go)
    return zero_outside(torch.stack(columns[::-1], dim=1), mask)


def group_centered(
    token_rewards: Float[Tensor, "B T"],
    mask: Shaped[Tensor, "B T"],
    *,
    group_size: int,
) -> Float[Tensor, "B T"]:
    r"""Reward minus the group's mean (:eq:`eq-group-centered`), as in Dr. GRPO and Kimi K2.

    .. math:: A_i = R_i - \mathrm{mean}_{j \in g(i)} R_j

    How much better than the group's mean? Equal to (G-1)/G times `leave_one_out`, so the gradient has the same
    direction.

    Chapter: dr-grpo. Source: arXiv 2503.20783, section 3.2.

    Returns:
        [B, T], one number a sequence; exactly 0 in a group of equal rewards.

    Example:
        >>> group_centered(torch.tensor([[1.0], [0.0]]), torch.ones(2, 1), group_size=2).flatten()
        tensor([ 0.5000, -0.5000])
    """
    return _spread(_centered(_grouped(token_rewards, mask, group_size)), mask)


def group_normalized(
    token_rewards: Float[Tensor, "B T"],
    mask: Shaped[Tensor, "B T"],
    *,
    group_size: int,
    eps: float = 1e-4,
    ddof: int = 1,
) -> Float[Tensor, "B T"]:
    r"""The group's z-score (:eq:`eq-group-normalized`), as in GRPO.

    .. math:: A_i = \frac{R_i - \mathrm{mean}_{j \in g(i)} R_j}{\mathrm{std}_{j \in g(i)} R_j + \epsilon}

    How many standard deviations better than the group's mean? Shifting or scaling all rewards of a prompt changes
    nothing, so a prompt with tiny differences has as large a gradient as one with large differences.

    Chapter: grpo. Source: arXiv 2402.03300, section 4.1.2. Differs from the paper: epsilon, which it leaves out.

    Args:
        eps: added to the standard deviation, usually 1e-4 (TRL) to 1e-6 (verl).
        ddof: 1 = sample standard deviation (TRL, verl), 0 = population.

    Returns:
        [B, T], one number a sequence; exactly 0 in a group of equal rewards, rounding or not.

    Raises:
        ValueError: a negative eps, a ddof other than 0 and 1.

    Example:
        >>> rewards = torch.tensor([[1.0], [0.0], [0.0], [0.0]])
        >>> group_normalized(rewards, torch.ones(4, 1), group_size=4).flatten()
        tensor([ 1.4997, -0.4999, -0.4999, -0.4999])
    """
    check_not_negative(eps=eps)
    rewards = _grouped(token_rewards, mask, group_size)
    return _spread(_zscore(rewards, eps, ddof), mask)


def leave_one_out(
    token_rewards: Float[Tensor, "B T"],
    mask: Shaped[Tensor, "B T"],
    *,
    group_size: int,
) -> Float[Tensor, "B T"]:
    r"""Reward minus the mean of the others (:eq:`eq-leave-one-out`), as in RLOO.

    .. math:: A_i = R_i - \frac1{G-1} \sum_{j \in g(i),\, j \ne i} R_j = \frac{G}{G-1} (R_i - \bar R)

    A baseline that does not depend on the completion's own reward leaves the gradient unbiased, if tokens are summed or
    divided by a constant.

    Chapter: rloo. Source: arXiv 2402.14740; Kool et al. 2019.

    Returns:
        [B, T], one number a sequence.

    Example:
        >>> leave_one_out(torch.tensor([[1.0], [0.0], [0.0]]), torch.ones(3, 1), group_size=3).flatten()
        tensor([ 1.0000, -0.5000, -0.5000])
    """
    rewards = _grouped(token_rewards, mask, group_size)
    return _spread(_centered(rewards) * (group_size / (group_size - 1)), mask)


def whiten(
    advantages: Float[Tensor, "B T"], mask: Shaped[Tensor, "B T"], *, eps: float = 1e-8, ddof: int = 1
) -> Float[Tensor, "B T"]:
    r"""Mean 0 and variance 1 over all trained tokens of the batch (:eq:`eq-whiten`), as in PPO and REINFORCE++.

    .. math:: A \leftarrow \frac{A - \mathrm{mean}(A)}{\sqrt{\mathrm{var}(A) + \epsilon}}

    Every token counts the same, so a long completion moves the mean more than a short one. Epsilon is inside the root.

    Chapter: ppo-rlhf. Source: OpenAI baselines; Huang et al. 2024, "The N implementation details of RLHF with PPO".

    Args:
        advantages: [B, T].
        eps: added to the variance.
        ddof: 1 = sample variance (TRL, verl), 0 = population (OpenRLHF).

    Raises:
        ValueError: fewer than two trained tokens, a negative eps.

    Example:
        >>> whiten(torch.tensor([[1.0, 3.0]]), torch.ones(1, 2))
        tensor([[-0.7071,  0.7071]])
    """
    check(mask, advantages=advantages)
    check_not_negative(eps=eps)
    mean, var = masked_mean(advantages, mask), masked_var(advantages, mask, ddof=ddof)
    return zero_outside(advantages - mean, mask) * torch.rsqrt(var + eps)


def place_rewards(rewards: Float[Tensor, " B"], mask: Shaped[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    r"""The outcome reward on the last trained token, 0 elsewhere (:eq:`eq-token-mdp`).

    A row without a trained token keeps its reward on its first position, so that its group still counts it.

    Chapter: policy-gradients.

    Args:
        rewards: [B].

    Raises:
        ValueError: dtype, or a reward that is not finite.

    Example:
        >>> place_rewards(torch.tensor([2.0]), torch.tensor([[1, 1, 0]]))
        tensor([[0., 2., 0.]])
    """
    check_mask(mask)
    check_rows("rewards", rewards, len(mask))
    return last_token(mask).to(rewards.dtype) * rewards[:, None]


def _sequence_rewards(token_rewards: Tensor, mask: Tensor) -> Tensor:
    """[B] total reward of each row; that of a fully masked row is on its first position (`place_rewards`)."""
    return sequence_sum(token_rewards, (mask != 0) | (last_token(mask) != 0))


def _grouped(token_rewards: Tensor, mask: Tensor, group_size: int) -> Tensor:
    check(mask, token_rewards=token_rewards)
    check_group(len(mask), group_size, at_least=2)
    return _sequence_rewards(token_rewards, mask).view(-1, group_size)  # [P, G]


def _centered(x: Tensor, mean: Tensor | None = None) -> Tensor:
    """X - mean along the last axis; exactly 0 where all are equal, which rounding in the mean would spoil."""
    constant = x.amax(-1, keepdim=True) == x.amin(-1, keepdim=True)
    mean = x.mean(-1, keepdim=True) if mean is None else mean
    return torch.where(constant, torch.zeros_like(x), x - mean)


def _zscore(x: Tensor, eps: float, ddof: int) -> Tensor:
    check_ddof(ddof)
    return _divide(_centered(x), _std(x, ddof) + eps)


def _std(x: Tensor, ddof: int = 1) -> Tensor:
    """Standard deviation along the last axis, which stays."""
    std = x.std(-1, keepdim=True, correction=ddof)
    check_fits("the standard deviation", std)
    return std


def _divide(centered: Tensor, spread: Tensor) -> Tensor:
    return torch.where(centered == 0, centered, centered / spread)  # 0 stays 0, with eps = 0 too


def _spread(per_sequence: Tensor, mask: Tensor) -> Tensor:
    """[B, T]: the sequence's number on each of its trained tokens."""
    return zero_outside(per_sequence.reshape(-1, 1).expand(mask.shape), mask)
