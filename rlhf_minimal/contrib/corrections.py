r"""More cells of the correct column: weights from the engine that sampled to the old policy.

And `score_centering`, which no column holds: it reads several tokens at each place, where a batch has the sampled one.
"""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from ..functional.aggregation import Totals
from ..functional.checks import check, check_floating, check_mask, check_not_negative, check_positive, check_same_shape
from ..functional.corrections import _weight, truncated_importance
from .aggregation import _check_whole


def masked_importance(
    old_logp: Float[Tensor, "B T"],
    sampler_logp: Float[Tensor, "B T"] | None,
    mask: Shaped[Tensor, "B T"],
    *,
    low: float = 0.5,
    high: float = 2.0,
    level: str = "token",
) -> Float[Tensor, "B T"]:
    r"""Importance weight inside a band, and nothing outside it (:eq:`eq-masked-importance`): IcePop.

    .. math:: c_t = \rho_t\, [\text{low} \le \rho_t \le \text{high}], \qquad \rho_t = \pi_{old}(o_t) / \mu(o_t)

    Where the two log-probs differ by a large factor, one of them is wrong. `truncated_importance` still trains on such
    a token with the largest weight allowed; this leaves it out. The token is still counted in the mean.

    Chapter: off-policy. Source: IcePop, arXiv 2510.18855; GLM-5, arXiv 2602.15763, eq. 1 (low = 1 / high). With level
    "sequence" and high = 3 TRL's default.

    Args:
        old_logp: [B, T] old policy, by the trainer (nats).
        sampler_logp: [B, T] old policy, by the engine that sampled.
        mask: [B, T], 1 on trained tokens.
        low: smallest weight that is kept, usually 0.5.
        high: largest weight that is kept, above low, usually 2.
        level: "token", or "sequence": one weight a row, the product over its tokens.

    Returns:
        [B, T] weights, without gradient; 1 where both agree, 0 outside the band.

    Raises:
        ValueError: no ``sampler_logp``, an unknown level, a band without width, bad tensors.

    Example:
        >>> masked_importance(torch.tensor([[-1.0, -1.0]]), torch.tensor([[-1.0, -9.0]]), torch.ones(1, 2))
        tensor([[1., 0.]])
    """
    check_not_negative(low=low, high=high)
    if not high > low:
        raise ValueError(f"low is {low} and high {high}: the band lies between them, low below high")
    weight = _weight(old_logp, sampler_logp, mask, level)
    return torch.where((weight >= low) & (weight <= high), weight, torch.zeros_like(weight))


def normalized_importance(
    old_logp: Float[Tensor, "B T"],
    sampler_logp: Float[Tensor, "B T"] | None,
    mask: Shaped[Tensor, "B T"],
    *,
    totals: Totals | None = None,
    cap: float = 2.0,
    floor: float = 0.0,
    level: str = "token",
) -> Float[Tensor, "B T"]:
    r"""`truncated_importance` over its own mean in the step (:eq:`eq-normalized-importance`).

    .. math:: \hat c_t = c_t / \bar c

    The mean is over tokens, or over sequences where a weight belongs to a whole one. After the division weights have
    the mean 1, so a cap or a systematic offset between the engines does not change the size of the step. The price is
    a bias that falls with the size of the batch: self-normalised importance sampling.

    Chapter: off-policy. Source: verl's `rollout_is_batch_normalize`, which takes the mean over the whole rollout.

    Args:
        old_logp: [B, T] old policy, by the trainer (nats).
        sampler_logp: [B, T] old policy, by the engine that sampled.
        mask: [B, T], 1 on trained tokens of a whole optimiser step.
        totals: counts of the whole optimiser step, to check that the mask is all of it; default: not checked.
        cap: C, above the floor, usually 2.
        floor: smallest weight before the division, usually 0.
        level: "token", or "sequence": one weight a row, and a mean over rows that have a trained token.

    Returns:
        [B, T] weights, without gradient.

    Raises:
        ValueError: a part of an optimiser step; whatever `truncated_importance` refuses.

    Example:
        >>> normalized_importance(torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, -9.0]]), torch.ones(1, 2))
        tensor([[0.6667, 1.3333]])
    """
    weight = truncated_importance(old_logp, sampler_logp, mask, cap=cap, floor=floor, level=level)
    if totals is not None:
        _check_whole(totals, mask, "normalized_importance takes a mean")
    counted = mask != 0 if level == "token" else (mask != 0).any(-1)
    mean = (weight if level == "token" else weight[:, 0])[counted].mean()
    return weight / mean.clamp(min=1e-8)


def score_centering(
    logp: Float[Tensor, "B T K"],
    sampler_logp: Float[Tensor, "B T K"],
    mask: Shaped[Tensor, "B T"],
    *,
    floor: float = 1.0,
    cap: float = 1.0,
) -> Float[Tensor, "B T"]:
    r"""What the sampler's expected score adds to a token's objective (:eq:`eq-score-centering`): to be taken away.

    .. math::
        C_t = \sum_{v \in K} \mathrm{sg}\big[ m_v - \alpha\, \pi_v \big] \log \pi_v, \qquad
        m_v = \mu_v \, \mathrm{clamp}(\pi_v/\mu_v, l, u), \quad \alpha = \mathrm{clamp}(1, l \varrho, u \varrho), \quad
        \varrho = \frac{1 - \sum_K \mu_v}{1 - \sum_K \pi_v}

    With samples of mu the score of pi is not 0 in the mean, and a constant in the advantage moves the policy. The
    gradient of C is that mean, so ``A * (w * logp - C)`` has none. The bounds l and u are those of the weight that the
    objective has, w = sg[clamp(pi/mu, l, u)] with the policy now, and not of an older policy's weight times a ratio:
    both 1 where it has none, 0 and the cap where it is truncated. The K tokens are the sampler's likeliest; of the
    others only the mass is known, and they are taken to be distributed as under pi, which is wrong for a large rest.
    With all tokens it is exact. Without a weight, a rest of the policy's below 1e-6 leaves the sampler's rest in place.

    Chapter: off-policy-in-depth. Source: Marek and Ryabinin, arXiv 2609.20807, eq. 14; NeMo RL's
    `compute_score_centering_term`.

    Args:
        logp: [B, T, K] log-probs of K tokens under the policy now, normalised over all tokens; with gradient.
        sampler_logp: [B, T, K] of the same tokens under the sampler.
        mask: [B, T], 1 on trained tokens.
        floor: l, the least weight, at most 1.
        cap: u, the largest weight, at least 1.

    Returns:
        [B, T], 0 outside the mask. Its value says nothing, its gradient is the expected score.

    Raises:
        ValueError: shapes or dtypes that do not fit, probabilities above 1 together, bounds that exclude 1.

    Example:
        >>> both = torch.tensor([[[0.5, 0.25]]]).log()
        >>> score_centering(both, both, torch.ones(1, 1))
        tensor([[0.]])
    """
    check_floating("logp", logp)
    check_floating("sampler_logp", sampler_logp)
    check_same_shape(logp=logp, sampler_logp=sampler_logp)
    if logp.dim() != 3:
        raise ValueError(f"logp has shape {tuple(logp.shape)}, expected [B, T, K]: K tokens at each place")
    check_mask(mask)
    if mask.shape != logp.shape[:2]:
        raise ValueError(
            f"mask has shape {tuple(mask.shape)}, expected {tuple(logp.shape[:2])}: one number for each place of logp"
        )
    check(mask)
    check_not_negative(floor=floor)
    check_positive(cap=cap)
    if not floor <= 1 <= cap:
        raise ValueError(f"floor is {floor} and cap {cap}: 1, the weight where both agree, lies between them")
    trained = (mask != 0)[..., None]
    logp = torch.where(trained, logp, -torch.inf)
    p, q = logp.detach().exp(), torch.where(trained, sampler_logp, -torch.inf).detach().exp()
    for name, x in (("logp", p), ("sampler_logp", q)):
        if not (x.sum(-1) <= 1 + 1e-4).all():
            raise ValueError(
                f"the probabilities of {name} sum to more than 1: normalise over all tokens, give each once"
            )
    rest = (1 - q.sum(-1, keepdim=True)).clamp(min=0) / (1 - p.sum(-1, keepdim=True)).clamp(min=1e-6)  # [B, T, 1]
    mass = torch.minimum(torch.maximum(p, floor * q), cap * q)  # q times the weight
    alpha = torch.minimum(torch.ones_like(rest).maximum(floor * rest), cap * rest)
    return (torch.where(trained & torch.isfinite(logp), logp, 0.0) * (mass - alpha * p)).sum(-1)
