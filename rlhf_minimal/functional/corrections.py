r"""The correct column: whose log-probs were sampled?

The engine that sampled and the model that trains may compute different log-probs from the same weights (another kernel,
another precision). ``old_logp`` is the old policy's log-prob computed by the trainer, ``sampler_logp`` that computed by
the sampler. The weight between them multiplies the objective and has no gradient.
"""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from .checks import check, check_not_negative, check_positive
from .masked import sequence_sum, zero_outside


def truncated_importance(
    old_logp: Float[Tensor, "B T"],
    sampler_logp: Float[Tensor, "B T"] | None,
    mask: Shaped[Tensor, "B T"],
    *,
    cap: float = 2.0,
    floor: float = 0.0,
    level: str = "token",
) -> Float[Tensor, "B T"]:
    r"""Importance weight from the sampler to the old policy, capped (:eq:`eq-truncated-importance`).

    .. math:: c_t = \mathrm{clip}\big(\pi_{old}(o_t) / \mu(o_t),\; \text{floor},\; C\big)

    The cap trades a little bias for a bounded variance. At level "sequence" the weight is the product over tokens, one
    for the whole row. Without the cap that is exact, but on long completions it soon grows or shrinks without limit.

    Chapter: scaling-up-in-depth. Source: Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy
    RL training".

    Args:
        old_logp: [B, T] old policy, by the trainer (nats).
        sampler_logp: [B, T] old policy, by the engine that sampled.
        mask: [B, T], 1 on trained tokens.
        cap: C, above the floor, usually 2.
        floor: smallest weight, usually 0: no lower bound.
        level: "token" or "sequence".

    Returns:
        [B, T] weights, without gradient. Where both agree, 1, or whichever of floor and cap is nearer if 1 lies beyond
        it. Under a zero mask the same, or at level "sequence" the row's weight; the loss leaves it out.

    Raises:
        ValueError: no ``sampler_logp``, an unknown level, a cap not above the floor, bad tensors.

    Example:
        >>> truncated_importance(torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, -9.0]]), torch.ones(1, 2))
        tensor([[1., 2.]])
    """
    check_positive(cap=cap)
    check_not_negative(floor=floor)
    if not cap > floor:
        raise ValueError(f"cap is {cap} and floor {floor}: the cap is the larger of the two")
    return _weight(old_logp, sampler_logp, mask, level).clamp(floor, cap)


def _weight(old_logp: Tensor, sampler_logp: Tensor | None, mask: Tensor, level: str) -> Tensor:
    """[B, T] pi_old / mu, of each token or of the row's product; 1 under a zero mask at level "token"."""
    if sampler_logp is None:
        raise ValueError("a correction needs the sampler's own log-probs: pass Batch(..., sampler_logp=...)")
    check(mask, old_logp=old_logp, sampler_logp=sampler_logp)
    difference = (zero_outside(old_logp, mask) - zero_outside(sampler_logp, mask)).detach()
    if level == "sequence":
        difference = sequence_sum(difference, mask)[:, None].expand_as(difference)
    elif level != "token":
        raise ValueError(f'level is {level!r}, expected "token" or "sequence"')
    return torch.exp(difference)
