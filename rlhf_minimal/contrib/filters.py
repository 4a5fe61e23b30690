r"""More cells of the keep column."""

from jaxtyping import Bool, Float
from torch import Tensor

from ..functional.checks import check_flags, check_rewards


def not_truncated(rewards: Float[Tensor, " B"], *, truncated: Bool[Tensor, " B"] | None) -> Bool[Tensor, " B"]:
    r"""Keep completions that ended by themselves (:eq:`eq-not-truncated`): DAPO's overlong filtering.

    .. math:: \text{keep}_i = \neg\, \text{truncated}_i

    The reward of a completion that was cut at the budget says nothing about how it would have ended.

    Chapter: dapo. Source: arXiv 2503.14476, section 3.4.

    Args:
        rewards: [B] raw.
        truncated: [B], True where the budget ended the completion.

    Returns:
        [B].

    Raises:
        ValueError: no ``truncated``, bad shapes.

    Example:
        >>> import torch
        >>> not_truncated(torch.ones(2), truncated=torch.tensor([True, False]))
        tensor([False,  True])
    """
    check_rewards(rewards)
    if truncated is None:
        raise ValueError("not_truncated needs to know which completions hit the budget: pass truncated, bool [B]")
    check_flags("truncated", truncated, len(rewards))
    return ~truncated
