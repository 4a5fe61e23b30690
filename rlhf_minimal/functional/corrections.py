r"""The correct column: whose log-probs were sampled?

The engine that sampled and the model that trains may disagree about the same weights (another kernel, another
precision). ``old_logp`` is the trainer's opinion of the old policy, ``sampler_logp`` the sampler's. The weight between
them is a constant: it multiplies the objective and has no gradient.
"""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from .checks import check, check_positive
from .masked import sequence_sum, zero_outside


def truncated_importance(
    old_logp: Float[Tensor, "B T"],
    sampler_logp: Float[Tensor, "B T"] | None,
    mask: Shaped[Tensor, "B T"],
    *,
    cap: float = 2.0,
    level: str = "token",
) -> Float[Tensor, "B T"]:
    r"""Importance weight from the sampler to the old policy, capped (:eq:`eq-truncated-importance`).

    .. math:: c_t = \min\big(\pi_{old}(o_t) / \mu(o_t),\; C\big)

    The cap trades a little bias for a bounded variance. At level "sequence" the weight is the product over tokens, one
    for the whole row: exact without the cap, and soon out of range on long completions.

    Chapter: scaling-up. Source: Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL
    training".

    Args:
        old_logp: [B, T] old policy, by the trainer (nats).
        sampler_logp: [B, T] old policy, by the engine that sampled.
        mask: [B, T], 1 on trained tokens.
        cap: C, above 0, usually 2.
        level: "token" or "sequence".

    Returns:
        [B, T] weights, without gradient; 1 where both agree and under a zero mask.

    Raises:
        ValueError: no ``sampler_logp``, an unknown level, a cap not above 0, bad tensors.

    Example:
        >>> truncated_importance(torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, -9.0]]), torch.ones(1, 2))
        tensor([[1., 2.]])
    """
    if sampler_logp is None:
        raise ValueError("truncated_importance needs the sampler's own log-probs: pass Batch(..., sampler_logp=...)")
    check(mask, old_logp=old_logp, sampler_logp=sampler_logp)
    check_positive(cap=cap)
    difference = (zero_outside(old_logp, mask) - zero_outside(sampler_logp, mask)).detach()
    if level == "sequence":
        difference = sequence_sum(difference, mask)[:, None].expand_as(difference)
    elif level != "token":
        raise ValueError(f'level is {level!r}, expected "token" or "sequence"')
    return torch.exp(difference).clamp(max=cap)
