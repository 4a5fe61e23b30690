r"""The gate column: how much of the step is allowed, as a function of (ratio, advantage)?

A gate is an objective to maximise, [B, T] in and [B, T] out. At ratio 1 every gate has slope A in the ratio, but
for a `clip_weight` whose cap is below 1 or whose floor is above it: on-policy they all take the same step. They differ
once the policy has moved.
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

    Args:
        ratio: [B, T] from a ratio cell, 1 = not moved.
        advantage: [B, T], positive = reinforce.

    Returns:
        [B, T] objective, larger is better.

    Raises:
        ValueError: shapes that differ, integers.

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
        ratio: [B, T] from a ratio cell.
        advantage: [B, T].
        low: epsilon below 1, usually 0.2 (GSPO 3e-4); 1 or more switches the lower bound off.
        high: epsilon above 1, usually 0.2 to 0.28 (GSPO 4e-4).

    Returns:
        [B, T] objective, larger is better; never above the unclipped one.

    Raises:
        ValueError: shapes that differ, integers, a negative bound.

    Example:
        >>> clip(torch.tensor([[1.5, 1.5]]), torch.tensor([[1.0, -1.0]]), low=0.2, high=0.2)
        tensor([[ 1.2000, -1.5000]])
    """
    check_pair(ratio=ratio, advantage=advantage)
    check_not_negative(low=low, high=high)
    return torch.minimum(ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage)


def dual_clip(
    ratio: Float[Tensor, "B T"], advantage: Float[Tensor, "B T"], *, low: float, high: float, c: float = 3.0
) -> Float[Tensor, "B T"]:
    r"""Clip, and a second bound for bad tokens with a very large ratio (:eq:`eq-gate-dual-clip`).

    .. math:: A < 0:\quad \max\big(\text{clip}(w, A),\; c A\big)

    Plain clipping has no bound for a bad token that has become much likelier: its gradient grows with the ratio.
    Equal to TRL's ``delta`` where delta > 1 + high.

    Chapter: ppo-clip. Source: Ye et al., arXiv 1912.09729; verl's default with c = 3.

    Args:
        ratio: [B, T] from a ratio cell.
        advantage: [B, T].
        low: epsilon below 1, usually 0.2.
        high: epsilon above 1, usually 0.2.
        c: ratio above which a bad token has no gradient; above 1 + high, usually 3.

    Returns:
        [B, T] objective, larger is better.

    Raises:
        ValueError: shapes that differ, integers, a negative bound, c not above 1 + high.

    Example:
        >>> dual_clip(torch.tensor([[9.0, 2.0]]), torch.tensor([[-1.0, -1.0]]), low=0.2, high=0.2)
        tensor([[-3., -2.]])
    """
    clipped = clip(ratio, advantage, low=low, high=high)
    check_positive(c=c)
    if not c > 1 + high:
        raise ValueError(f"c is {c}, expected above 1 + high = {1 + high}: else the two clips contradict each other")
    return torch.where(advantage < 0, torch.maximum(clipped, c * advantage), clipped)


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
        ratio: [B, T] from a ratio cell.
        advantage: [B, T].
        cap: largest weight, absolute, usually 2 to 5.
        floor: smallest weight; 0 = no lower bound, as the paper uses it.

    Returns:
        [B, T] objective, larger is better.

    Raises:
        ValueError: shapes that differ, integers, a cap not above the floor.

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
        ratio: [B, T] from a ratio cell.
        advantage: [B, T].
        tau_pos: steepness for A > 0, usually 1.
        tau_neg: steepness for A <= 0, usually 1.05.

    Returns:
        [B, T] objective, larger is better. At ratio 1 its value is (2 / tau) A; only the slope is A.

    Raises:
        ValueError: shapes that differ, integers, a temperature not above 0.

    Example:
        >>> sigmoid(torch.tensor([[1.0, 1.0]]), torch.tensor([[1.0, -1.0]]))
        tensor([[ 2.0000, -1.9048]])
    """
    check_pair(ratio=ratio, advantage=advantage)
    check_positive(tau_pos=tau_pos, tau_neg=tau_neg)
    tau = torch.where(advantage > 0, torch.full_like(ratio, tau_pos), torch.full_like(ratio, tau_neg))
    return 4 / tau * torch.sigmoid(tau * (ratio - 1)) * advantage


def mask_weight(
    ratio: Float[Tensor, "B T"], advantage: Float[Tensor, "B T"], *, low: float, high: float
) -> Float[Tensor, "B T"]:
    r"""A hard window on the ratio, blind to the sign (:eq:`eq-gate-mask-weight`).

    .. math:: w A\, [1-\epsilon_{low} < w < 1+\epsilon_{high}]

    Outside the window a token is forgotten, also where its gradient would lead back, which `clip` keeps. `clip_weight`
    keeps every token, with the weight of the edge.

    Chapter: soft-gates. Source: Kimi K2.5, arXiv 2602.02276; SAO, arXiv 2607.07508; SkyRL's `rollout_is`.

    Args:
        ratio: [B, T] from a ratio cell.
        advantage: [B, T].
        low: epsilon below 1, usually 0.2 to 0.3.
        high: epsilon above 1, usually 0.28 (K2.5: not printed) to 5 (SAO).

    Returns:
        [B, T] objective, larger is better; 0 outside the window.

    Raises:
        ValueError: shapes that differ, integers, a bound not above 0.

    Example:
        >>> mask_weight(torch.tensor([[1.1, 1.5]]), torch.tensor([[1.0, -1.0]]), low=0.2, high=0.28)
        tensor([[1.1000, 0.0000]])
    """
    check_pair(ratio=ratio, advantage=advantage)
    check_positive(low=low, high=high)
    inside = (ratio.detach() > 1 - low) & (ratio.detach() < 1 + high)
    return torch.where(inside, ratio * advantage, torch.zeros_like(ratio))


def topr(ratio: Float[Tensor, "B T"], advantage: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    r"""TOPR: good tokens as in REINFORCE, bad ones with a weight of at most 1 (:eq:`eq-gate-topr`).

    .. math:: \mathrm{sg}[c / w]\, w A, \qquad c = 1\ (A > 0),\ \min(w, 1)\ (A \le 0)

    What a good sample teaches is right whoever sampled it. A bad one that has already become unlikely is pushed down
    less and less, in proportion to what is left of its probability.

    Chapter: soft-gates. Source: arXiv 2503.14286. Differs from the paper: there the ratio is that of the whole
    sequence; of single tokens, as here, in Trinity-RFT.

    Args:
        ratio: [B, T] from a ratio cell.
        advantage: [B, T].

    Returns:
        [B, T] objective, larger is better; its value is c A.

    Raises:
        ValueError: shapes that differ, integers.

    Example:
        >>> topr(torch.tensor([[3.0, 3.0, 0.5]]), torch.tensor([[1.0, -1.0, -1.0]]))
        tensor([[ 1.0000, -1.0000, -0.5000]])
    """
    check_pair(ratio=ratio, advantage=advantage)
    w = ratio.detach()
    return torch.where(advantage > 0, torch.ones_like(w), w.clamp(max=1.0)) / w * ratio * advantage


def gamma(
    ratio: Float[Tensor, "B T"],
    advantage: Float[Tensor, "B T"],
    *,
    k_pos: float = 2.0,
    k_neg: float = 3.0,
    lam_pos: float = 3.0,
    lam_neg: float = 2.0,
) -> Float[Tensor, "B T"]:
    r"""VESPO's weight, a gamma density without its constant (:eq:`eq-gate-gamma`).

    .. math::
        \mathrm{sg}\big[w^{k-1} e^{\lambda (1 - w)}\big]\, w A, \qquad
        (k, \lambda) = (k_{pos}, \lambda_{pos})\ (A \ge 0),\ (k_{neg}, \lambda_{neg})\ (A < 0)

    The weight is 1 at ratio 1, has its maximum at k / lambda and falls to 0 on both sides, without an edge. With the
    paper's numbers the maximum is at 2/3 for good completions and at 3/2 for bad ones.

    Chapter: soft-gates. Source: VESPO, arXiv 2602.10693; TRL's `vespo`. Its ratio is that of the whole sequence.

    Args:
        ratio: [B, T] from a ratio cell.
        advantage: [B, T].
        k_pos: exponent of the ratio for A >= 0, usually 2.
        k_neg: likewise for A < 0, usually 3.
        lam_pos: rate of the decay for A >= 0, usually 3.
        lam_neg: likewise for A < 0, usually 2.

    Returns:
        [B, T] objective, larger is better; its value is the weight times A.

    Raises:
        ValueError: shapes that differ, integers, a number not above 0.

    Example:
        >>> gamma(torch.tensor([[1.0, 3.0, 3.0]]), torch.tensor([[1.0, 1.0, -1.0]]))
        tensor([[ 1.0000,  0.0223, -0.4945]])
    """
    check_pair(ratio=ratio, advantage=advantage)
    check_positive(k_pos=k_pos, k_neg=k_neg, lam_pos=lam_pos, lam_neg=lam_neg)
    w, good = ratio.detach(), advantage >= 0
    k, lam = (torch.where(good, w.new_tensor(a), w.new_tensor(b)) for a, b in ((k_pos, k_neg), (lam_pos, lam_neg)))
    return torch.exp((k - 1) * torch.log(w) + lam * (1 - w)) * ratio * advantage
