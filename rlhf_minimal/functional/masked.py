r"""Sums and means over trained tokens. Nothing under a zero mask is ever read.

``x * mask`` would not be enough: zero times NaN is NaN, in the value and in the gradient.
"""

from collections.abc import Collection

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from .checks import (
    check,
    check_ddof,
    check_fits,
    check_floating,
    check_integers,
    check_mask,
    check_same_shape,
    check_tensor,
    check_tokens,
)


def zero_outside(x: Float[Tensor, "B T"], mask: Shaped[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """``x`` on trained tokens, exactly 0 elsewhere; no gradient flows from elsewhere either.

    Args:
        x: [B, T]; under a zero mask it may hold anything, NaN included.
        mask: [B, T], 1 on trained tokens.

    Returns:
        [B, T].

    Raises:
        ValueError: shapes that differ (nothing is broadcast), integers.

    Example:
        >>> zero_outside(torch.tensor([[1.0, float("nan")]]), torch.tensor([[1.0, 0.0]]))
        tensor([[1., 0.]])
    """
    check_floating("x", x)
    check_tensor("mask", mask)
    check_same_shape(x=x, mask=mask)
    return torch.where(mask != 0, x, 0.0)


def sequence_sum(x: Float[Tensor, "B T"], mask: Shaped[Tensor, "B T"]) -> Float[Tensor, " B"]:
    """Sum over each sequence's trained tokens; 0 for a row with none.

    Raises:
        ValueError: bad shapes or dtype, a non-finite trained token.

    Example:
        >>> sequence_sum(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1, 1], [1, 0]]))
        tensor([3., 3.])
    """
    check_tokens(mask, x=x)
    return zero_outside(x, mask).sum(-1)


def sequence_mean(x: Float[Tensor, "B T"], mask: Shaped[Tensor, "B T"]) -> Float[Tensor, " B"]:
    """Mean over each sequence's trained tokens; 0 for a row with none.

    Raises:
        ValueError: bad shapes or dtype, a non-finite trained token.

    Example:
        >>> sequence_mean(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1, 1], [0, 0]]))
        tensor([1.5000, 0.0000])
    """
    return sequence_sum(x, mask) / lengths(mask).clamp(min=1)


def masked_mean(x: Float[Tensor, "B T"], mask: Shaped[Tensor, "B T"]) -> Float[Tensor, ""]:
    """Mean over all trained tokens of the batch: every token counts the same, long rows count more.

    Raises:
        ValueError: bad shapes, non-finite trained tokens, or no trained token.

    Example:
        >>> masked_mean(torch.tensor([[1.0, 2.0], [6.0, 0.0]]), torch.tensor([[1, 1], [1, 0]]))
        tensor(3.)
    """
    check(mask, x=x)
    return zero_outside(x, mask).sum() / lengths(mask).sum()


def masked_var(x: Float[Tensor, "B T"], mask: Shaped[Tensor, "B T"], *, ddof: int = 1) -> Float[Tensor, ""]:
    """Variance over all trained tokens; ``ddof=1`` is the sample variance.

    Raises:
        ValueError: as `masked_mean`, no more than ``ddof`` trained tokens, or a ddof other than 0 and 1.

    Example:
        >>> masked_var(torch.tensor([[1.0, 3.0]]), torch.tensor([[1, 1]]))
        tensor(2.)
    """
    check_ddof(ddof)
    mean = masked_mean(x, mask)
    tokens = int(lengths(mask).sum())
    if tokens <= ddof:
        raise ValueError(
            f"{tokens} trained token(s) have no variance with ddof={ddof}: whiten over a larger batch, or set "
            "normalize=None"
        )
    variance = (zero_outside(x - mean, mask) ** 2).sum() / (tokens - ddof)
    check_fits("the variance", variance)
    return variance


def lengths(mask: Shaped[Tensor, "B T"]) -> Int[Tensor, " B"]:
    """Trained tokens of each row.

    Raises:
        ValueError: a mask that is not [B, T] of zeros and ones.

    Example:
        >>> lengths(torch.tensor([[1.0, 0.0, 1.0], [1.0, 1.0, 1.0]]))
        tensor([2, 3])
    """
    check_mask(mask)
    return (mask != 0).sum(-1)


def last_token(mask: Shaped[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """1 at each row's last trained token, where an outcome reward is earned.

    A row without a trained token (a truncated completion, masked out) is marked at its first position: its
    reward still counts in the statistics of its group, and no loss ever reads it.

    Raises:
        ValueError: a mask that is not [B, T] of zeros and ones.

    Example:
        >>> last_token(torch.tensor([[1, 0, 1, 0], [0, 0, 0, 0]]))
        tensor([[0., 0., 1., 0.],
                [1., 0., 0., 0.]])
    """
    check_mask(mask)
    position = torch.arange(mask.shape[1], device=mask.device)
    last = torch.where(mask != 0, position, 0).amax(-1, keepdim=True)  # [B, 1]
    dtype = mask.dtype if mask.is_floating_point() else torch.get_default_dtype()
    return (position == last).to(dtype)


def completion_mask(
    ids: Int[Tensor, "B T"], eos_id: int | Collection[int], limits: Int[Tensor, " B"] | None = None
) -> Float[Tensor, "B T"]:
    """1 up to and including the first end-of-sequence token, 0 after it.

    The mask comes from lengths and never from ``ids != pad``: where pad and EOS are one token, that form
    masks the EOS out, and the model never learns to stop.

    Args:
        ids: [B, T] completion tokens, padded on the right with anything.
        eos_id: the token that ends a completion, or all of those that do.
        limits: [B] tokens that were generated, if a row may end without EOS before T.

    Returns:
        [B, T] mask of ones and zeros.

    Raises:
        ValueError: ids that are not [B, T] integers, or limits that are not one integer a row.

    Example:
        >>> completion_mask(torch.tensor([[5, 2, 2], [5, 6, 7]]), eos_id=2)
        tensor([[1., 1., 0.],
                [1., 1., 1.]])
        >>> completion_mask(torch.tensor([[5, 2, 2], [5, 6, 7]]), eos_id=(2, 6))
        tensor([[1., 1., 0.],
                [1., 1., 0.]])
    """
    check_integers("ids", ids)
    if ids.dim() != 2:
        raise ValueError(f"ids have shape {tuple(ids.shape)}, expected [B, T], one row for each completion")
    end_ids = [eos_id] if isinstance(eos_id, int) else [*eos_id]
    ends = torch.isin(ids, torch.tensor(end_ids, device=ids.device)).long()
    ended_before = ends.cumsum(-1) - ends  # [B, T] EOS tokens strictly before here
    mask = ended_before == 0
    if limits is not None:
        check_integers("limits", limits)
        if limits.shape != ids.shape[:1]:
            raise ValueError(f"limits have shape {tuple(limits.shape)}, expected ({len(ids)},): one number per row")
        mask &= torch.arange(ids.shape[1], device=ids.device) < limits[:, None]
    return mask.to(torch.get_default_dtype())
