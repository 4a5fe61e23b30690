r"""The gate column: how much of the step is allowed, as a function of (ratio, advantage)?

A gate is an objective to maximise, [B, T] in and [B, T] out. At ratio 1 every gate has slope A in the ratio, but
for a `clip_weight` whose cap is below 1 or whose floor is above it: on-policy they all take the same step. They differ
once the policy has moved. What a gate is given, gives back and refuses is said once, in `contracts.GateCell`.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from .checks import check_not_negative, check_pair, check_positive


def none(ratio: Float[Tensor, "B T"], advantage: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    r"""No gate: the importance-weighted advantage (:eq:`eq-gate-none`).

    .. math:: w A

    Nothing stops a token's probability from moving further.

    Chapter: policy-gradients. Source: TRPO's surrogate, arXiv 1502.05477, eq. 14.

    Example:
        >>> none(torch.tensor([[1.5]]), torch.tensor([[2.0]]))
        tensor([[3.]])
    """
    check_pair(ratio=ratio, advantage=advantage)
    return ratio * advantage


def clip(
    ratio: Float[Tensor, "B T"], advantage: Float[Tensor, "B T"], *, low: float, high: float
) -> Float[Tensor, "B T"]:
    r"""PPO's clipped surrogate, with its two bounds apart (:eq:`eq-gate-clip`).

    .. math:: \min\big(w A,\; \mathrm{clip}(w, 1-\epsilon_{low}, 1+\epsilon_{high})\, A\big)

    Once a good token is likelier by ``high``, or a bad one less likely by ``low``, its gradient is 0. The minimum keeps
    the gradient where the policy has moved the wrong way; it is the same ``min`` for both signs of A.

    Chapter: ppo-clip (one bound), dapo (two). Source: arXiv 1707.06347, eq. 7; clip-higher arXiv 2503.14476, eq. 8.

    Args:
        low: epsilon below 1, usually 0.2 (GSPO 3e-4); 1 or more switches the lower bound off.
        high: epsilon above 1, usually 0.2 to 0.28 (GSPO 4e-4).

    Returns:
        [B, T] objective, larger is better; never above the unclipped one.

    Raises:
        ValueError: a negative bound.

    Example:
        >>> clip(torch.tensor([[1.5, 1.5]]), torch.tensor([[1.0, -1.0]]), low=0.2, high=0.2)
        tensor([[ 1.2000, -1.5000]])
    """
    check_pair(ratio=ratio, advantage=advantage)
    check_not_negative(low=low, high=high)
    return torch.minimum(ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage)


def clip_weight(
    ratio: Float[Tensor, "B T"], advantage: Float[Tensor, "B T"], *, cap: float, floor: float = 0.0
) -> Float[Tensor, "B T"]:
    r"""CISPO: clip the weight and keep every gradient (:eq:`eq-gate-clip-weight`).

    .. math:: \mathrm{sg}\big[\mathrm{clip}(w, \text{floor}, \text{cap}) / w\big]\, w A

    Its gradient is sg[clip(w)] A grad log pi: a token that has moved far counts less, but it is never dropped.
    It is written as a function of ratio and advantage, like every other gate. So its value is clip(w) A, and not
    sg[clip(w)] A log pi as in other libraries; the gradients are equal.

    Chapter: soft-gates. Source: MiniMax-M1, arXiv 2506.13585, eq. 4-5.
    Differs from the paper: ``cap`` is absolute, the paper's 1 + epsilon_high.

    Args:
        cap: largest weight, absolute, usually 2 to 5.
        floor: smallest weight; 0 = no lower bound, as the paper uses it.

    Raises:
        ValueError: a cap not above the floor.

    Example:
        >>> clip_weight(torch.tensor([[9.0, 2.0]]), torch.tensor([[1.0, 1.0]]), cap=5.0)
        tensor([[5., 2.]])
    """
    check_pair(ratio=ratio, advantage=advantage)
    check_not_negative(floor=floor, cap=cap)
    if not cap > floor:
        raise ValueError(f"cap is {cap} and floor {floor}: the cap is absolute (1 + epsilon) and above the floor")
    weight = ratio.detach().clamp(floor, cap)
    return (weight / ratio.detach()) * ratio * advantage


def sigmoid(
    ratio: Float[Tensor, "B T"],
    advantage: Float[Tensor, "B T"],
    *,
    tau_pos: float = 1.0,
    tau_neg: float = 1.05,
) -> Float[Tensor, "B T"]:
    r"""SAPO's soft gate (:eq:`eq-gate-sigmoid`).

    .. math::
        \frac{4}{\tau}\, \sigma\big(\tau (w - 1)\big)\, A, \qquad \tau = \tau_{pos}\ (A > 0),\ \tau_{neg}\ (A \le 0)

    The slope falls smoothly as the ratio leaves 1, instead of dropping to 0 at a bound; the factor 4/tau makes it A at
    ratio 1. It falls a little faster for bad tokens, since making one token less likely makes all others likelier.

    Chapter: soft-gates. Source: arXiv 2511.20347.

    Args:
        tau_pos: steepness for A > 0, usually 1.
        tau_neg: steepness for A <= 0, usually 1.05.

    Returns:
        [B, T] objective, larger is better. At ratio 1 its value is (2 / tau) A; only the slope is A.

    Raises:
        ValueError: a temperature not above 0.

    Example:
        >>> sigmoid(torch.tensor([[1.0, 1.0]]), torch.tensor([[1.0, -1.0]]))
        tensor([[ 2.0000, -1.9048]])
    """
    check_pair(ratio=ratio, advantage=advantage)
    check_positive(tau_pos=tau_pos, tau_neg=tau_neg)
    tau = torch.where(advantage > 0, torch.full_like(ratio, tau_pos), torch.full_like(ratio, tau_neg))
    return 4 / tau * torch.sigmoid(tau * (ratio - 1)) * advantage
