r"""The keep column: which sequences are trained on?

A filter reads raw rewards and the context that it declares (`contracts.KeepCell`), and says for each row whether it is
kept. Only `train.collect` calls it. A group without a kept row is replaced by a new prompt; in any other group, a
dropped row is masked and its reward stays in the group's statistics.
"""

from jaxtyping import Bool, Float
from torch import Tensor

from .checks import check_group, check_rewards


def mixed_outcomes(rewards: Float[Tensor, " B"], *, group_size: int) -> Bool[Tensor, " B"]:
    r"""Keep groups whose rewards differ (:eq:`eq-mixed-outcomes`): DAPO's dynamic sampling.

    .. math:: \text{keep}_i = \big[\max_{j \in g(i)} R_j > \min_{j \in g(i)} R_j\big]

    If rewards are not shaped, every completion of a group with equal rewards has advantage 0: it costs samples and has
    no policy gradient. Shaped rewards (DAPO's penalty on length) may differ where the raw ones are equal: such a group
    is dropped although it has a gradient. The test is on the spread, not on a mean of 0 or 1, so that a group of equal
    fractional rewards is dropped too.

    Chapter: dapo. Source: arXiv 2503.14476, eq. 11.

    Args:
        rewards: [B] raw, before shaping.
        group_size: G, at least 2.

    Returns:
        [B], True for every row of a mixed group.

    Raises:
        ValueError: groups that do not divide or hold one row, bad shapes.

    Example:
        >>> import torch
        >>> mixed_outcomes(torch.tensor([1.0, 0.0, 1.0, 1.0]), group_size=2)
        tensor([ True,  True, False, False])
    """
    check_rewards(rewards)
    check_group(len(rewards), group_size, at_least=2)
    group = rewards.view(-1, group_size)  # [P, G]
    return (group.amax(-1) > group.amin(-1)).repeat_interleave(group_size)
