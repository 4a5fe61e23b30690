r"""More cells of the gate column: an objective [B, T] of (ratio, advantage), as in `functional.gates`."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..functional.checks import check_pair, check_positive
from ..functional.gates import clip


def dual_clip(
    ratio: Float[Tensor, "B T"], advantage: Float[Tensor, "B T"], *, low: float, high: float, c: float = 3.0
) -> Float[Tensor, "B T"]:
    r"""Clip, and a second bound for bad tokens with a very large ratio (:eq:`eq-gate-dual-clip`).

    .. math:: A < 0:\quad \max\big(\text{clip}(w, A),\; c A\big)

    Plain clipping has no bound for a bad token that has become much likelier: its gradient grows with the ratio.
    Equal to TRL's ``delta`` where delta > 1 + high.

    Chapter: ppo-clip. Source: Ye et al., arXiv 1912.09729; verl's default with c = 3.

    Args:
        low: epsilon below 1, usually 0.2.
        high: epsilon above 1, usually 0.2.
        c: ratio above which a bad token has no gradient; above 1 + high, usually 3.

    Raises:
        ValueError: a negative bound, c not above 1 + high.

    Example:
        >>> dual_clip(torch.tensor([[9.0, 2.0]]), torch.tensor([[-1.0, -1.0]]), low=0.2, high=0.2)
        tensor([[-3., -2.]])
    """
    clipped = clip(ratio, advantage, low=low, high=high)
    check_positive(c=c)
    if not c > 1 + high:
        raise ValueError(f"c is {c}, expected above 1 + high = {1 + high}: else the two clips contradict each other")
    return torch.where(advantage < 0, torch.maximum(clipped, c * advantage), clipped)


def mask_weight(
    ratio: Float[Tensor, "B T"], advantage: Float[Tensor, "B T"], *, low: float, high: float
) -> Float[Tensor, "B T"]:
    r"""A hard window on the ratio, blind to the sign (:eq:`eq-gate-mask-weight`).

    .. math:: w A\, [1-\epsilon_{low} < w < 1+\epsilon_{high}]

    Outside the window a token is forgotten, also where its gradient would lead back, which `clip` keeps. `clip_weight`
    keeps every token, with the weight of the edge.

    Chapter: soft-gates. Source: Kimi K2.5, arXiv 2602.02276; SAO, arXiv 2607.07508; SkyRL's `rollout_is`.

    Args:
        low: epsilon below 1, usually 0.2 to 0.3.
        high: epsilon above 1, usually 0.28 (K2.5: not printed) to 5 (SAO).

    Returns:
        [B, T] objective, larger is better; 0 outside the window.

    Raises:
        ValueError: a bound not above 0.

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

    Returns:
        [B, T] objective, larger is better; its value is c A.

    Example:
        >>> topr(torch.tensor([[3.0, 3.0, 0.5]]), torch.tensor([[1.0, -1.0, -1.0]]))
        tensor([[ 1.0000, -1.0000, -0.5000]])
    """
    check_pair(ratio=ratio, advantage=advantage)
    w = ratio.detach()
    return torch.where(advantage > 0, torch.ones_like(w), w.clamp(max=1.0)) / w * ratio * advantage


def vespo(
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
        k_pos: exponent of the ratio for A >= 0, usually 2.
        k_neg: likewise for A < 0, usually 3.
        lam_pos: rate of the decay for A >= 0, usually 3.
        lam_neg: likewise for A < 0, usually 2.

    Returns:
        [B, T] objective, larger is better; its value is the weight times A.

    Raises:
        ValueError: a number not above 0.

    Example:
        >>> vespo(torch.tensor([[1.0, 3.0, 3.0]]), torch.tensor([[1.0, 1.0, -1.0]]))
        tensor([[ 1.0000,  0.0223, -0.4945]])
    """
    check_pair(ratio=ratio, advantage=advantage)
    check_positive(k_pos=k_pos, k_neg=k_neg, lam_pos=lam_pos, lam_neg=lam_neg)
    w, good = ratio.detach(), advantage >= 0
    k, lam = (torch.where(good, w.new_tensor(a), w.new_tensor(b)) for a, b in ((k_pos, k_neg), (lam_pos, lam_neg)))
    return torch.exp((k - 1) * torch.log(w) + lam * (1 - w)) * ratio * advantage
