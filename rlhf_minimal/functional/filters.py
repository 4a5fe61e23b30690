r"""The keep column: which sequences are trained on?

A filter sees raw rewards, and what it declares of the context (`contracts.KeepCell`), and says yes or no to each row.
The loop alone calls it: a group without a kept row is dropped
and replaced by a fresh prompt, a single dropped row is masked while its reward stays in its group's statistics.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from .checks import check_group, check_rewards, check_tensor


def mixed_outcomes(rewards: Float[Tensor, " B"], *, group_size: int) -> Bool[Tensor, " B"]:
    r"""Keep groups whose rewards differ (:eq:`eq-mixed-outcomes`): DAPO's dynamic sampling.

    .. math:: \text{keep}_i = \big[\max_{j \in g(i)} R_j > \min_{j \in g(i)} R_j\big]

    Where rewards are not shaped, a group of equal rewards has advantage zero for everybody: it costs samples and has no
    policy gradient. A shaped reward (DAPO's penalty on length) may differ where the raw ones agree: such a group is
    dropped although it has a gradient. Decided by spread and not by the mean, so that groups of equal fractional
    rewards go too.

    Chapter: dapo. Source: arXiv 2503.14476, eq. 11.

    Args:
        rewards: [B] raw, before shaping.
        group_size: G, at least 2.

    Returns:
        [B], True for every row of a mixed group.

    Raises:
        ValueError: groups that do not divide or hold one row, bad shapes.

    Example:
        >>> mixed_outcomes(torch.tensor([1.0, 0.0, 1.0, 1.0]), group_size=2)
        tensor([ True,  True, False, False])
    """
    check_rewards(rewards)
    check_group(len(rewards), group_size, at_least=2)
    group = rewards.view(-1, group_size)  # [P, G]
    return (group.amax(-1) > group.amin(-1)).repeat_interleave(group_size)


def not_truncated(rewards: Float[Tensor, " B"], *, truncated: Bool[Tensor, " B"] | None) -> Bool[Tensor, " B"]:
    r"""Keep completions that ended by themselves (:eq:`eq-not-truncated`): DAPO's overlong filtering.

    .. math:: \text{keep}_i = \neg\, \text{truncated}_i

    A completion that was cut at the budget is scored on where it was cut, and not on what it would have said.

    Chapter: dapo. Source: arXiv 2503.14476, section 3.4.

    Args:
        rewards: [B] raw.
        truncated: [B], True where the budget ended the completion.

    Returns:
        [B].

    Raises:
        ValueError: no ``truncated``, bad shapes.

    Example:
        >>> not_truncated(torch.ones(2), truncated=torch.tensor([True, False]))
        tensor([False,  True])
    """
    check_rewards(rewards)
    if truncated is None:
        raise ValueError("not_truncated needs to know which completions hit the budget: pass truncated, bool [B]")
    check_tensor("truncated", truncated)
    if truncated.shape != rewards.shape or truncated.dtype != torch.bool:
        raise ValueError(
            f"truncated is {truncated.dtype} {tuple(truncated.shape)}, expected bool {tuple(rewards.shape)}"
        )
    return ~truncated
