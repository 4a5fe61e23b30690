r"""The trust column: which tokens may be trained on?

A weight [B, T] on the gated objective, 1 = train, 0 = leave out. It may read what a gate cannot: the probabilities and
not only their ratio, the whole sequence, the sampler's log-probs, the entropy (`contracts.TrustCell`). It has no
gradient and changes no denominator: a token of weight 0 is still counted in the mean.
"""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from ..functional.aggregation import Totals
from ..functional.checks import check, check_count, check_not_negative, check_share
from ..functional.masked import sequence_mean, zero_outside
from .aggregation import _check_whole


def off_policy_sequence(
    mask: Shaped[Tensor, "B T"],
    *,
    logp: Float[Tensor, "B T"],
    sampler_logp: Float[Tensor, "B T"],
    advantages: Float[Tensor, "B T"],
    delta: float = 0.5,
) -> Float[Tensor, "B T"]:
    r"""Leaves out bad completions that the policy has already made unlikely (:eq:`eq-off-policy-sequence`).

    .. math::
        m_i = \Big[A_i \ge 0 \;\text{ or }\; \frac1{|o_i|} \sum_t \big(\log \mu_t - \log \pi_t\big) \le \delta\Big]

    A good completion may be learned from, however unlikely it has become. A bad one that is already unlikely needs no
    further step, and making it still less likely would change the probabilities of all others.

    Chapter: off-policy. Source: DeepSeek-V3.2, arXiv 2512.02556, eq. 9. The paper's old policy is, by its own note,
    what the inference engine returned, as here; it gives no number for delta.

    Args:
        mask: [B, T], 1 on trained tokens.
        logp: [B, T] log-probs under the policy as it is now (nats).
        sampler_logp: [B, T] by the engine that sampled.
        advantages: [B, T].
        delta: largest mean drift in nats per token, usually 0.5.

    Returns:
        [B, T], 1 or 0, one number a sequence for advantages of one sign.

    Raises:
        ValueError: bad tensors, a negative delta.

    Example:
        >>> far, A = torch.tensor([[-3.0], [-3.0]]), torch.tensor([[1.0], [-1.0]])
        >>> off_policy_sequence(torch.ones(2, 1), logp=far, sampler_logp=far + 1, advantages=A).flatten()
        tensor([1., 0.])
    """
    check(mask, logp=logp, sampler_logp=sampler_logp, advantages=advantages)
    check_not_negative(delta=delta)
    drift = sequence_mean(zero_outside(sampler_logp, mask) - zero_outside(logp, mask), mask)[:, None]  # [B, 1]
    return _weight((advantages >= 0) | (drift <= delta), logp, mask)


def dppo_tv(
    mask: Shaped[Tensor, "B T"],
    *,
    logp: Float[Tensor, "B T"],
    old_logp: Float[Tensor, "B T"],
    advantages: Float[Tensor, "B T"],
    low: float = 0.2,
    high: float = 0.2,
) -> Float[Tensor, "B T"]:
    r"""Stops where a token's probability, not its ratio, has moved far enough (:eq:`eq-dppo-tv`).

    .. math::
        m_t = \begin{cases} [\pi_t - \pi_{old,t} \le \delta_{high}] & A_t > 0 \\
        [\pi_t - \pi_{old,t} \ge -\delta_{low}] & A_t \le 0 \end{cases}

    A ratio is the wrong measure for rare tokens: from 0.0001 to 0.0003 it is 3 although almost nothing has changed,
    from 0.6 to 0.9 it is 1.5. The difference is this token's part of the total variation between the two policies.

    Chapter: off-policy. Source: DPPO, arXiv 2602.04879; verl's `dppo_tv`, prime-rl's default loss of August 2026.

    Args:
        mask: [B, T], 1 on trained tokens.
        logp: [B, T] log-probs under the policy as it is now (nats).
        old_logp: [B, T] under the policy that sampled.
        advantages: [B, T].
        low: largest fall of a bad token's probability, between 0 and 1, usually 0.2.
        high: largest rise of a good token's, likewise.

    Returns:
        [B, T], 1 or 0.

    Raises:
        ValueError: bad tensors, a bound outside 0 to 1.

    Example:
        >>> old, A = torch.tensor([[0.0001, 0.6]]).log(), torch.ones(1, 2)
        >>> dppo_tv(torch.ones(1, 2), logp=torch.tensor([[0.0003, 0.9]]).log(), old_logp=old, advantages=A)
        tensor([[1., 0.]])
    """
    check(mask, logp=logp, old_logp=old_logp, advantages=advantages)
    check_share(low=low, high=high)
    moved = torch.exp(zero_outside(logp, mask)) - torch.exp(zero_outside(old_logp, mask))
    return _weight(torch.where(advantages > 0, moved <= high, moved >= -low), logp, mask)


def dppo_kl(
    mask: Shaped[Tensor, "B T"],
    *,
    logp: Float[Tensor, "B T"],
    old_logp: Float[Tensor, "B T"],
    advantages: Float[Tensor, "B T"],
    low: float = 0.05,
    high: float = 0.05,
) -> Float[Tensor, "B T"]:
    r"""As `dppo_tv`, with the KL between the two outcomes "this token" and "any other" (:eq:`eq-dppo-kl`).

    .. math::
        m_t = 0 \iff p \log\frac{p}{q} + (1-p) \log\frac{1-p}{1-q} > \delta \;\text{ and }\; (q - p)\, A_t > 0,
        \qquad p = \pi_{old,t},\ q = \pi_t

    Near 0 and near 1 it is stricter than the difference of the probabilities.

    Chapter: off-policy. Source: DPPO, arXiv 2602.04879; verl's `dppo_kl`.

    Args:
        mask: [B, T], 1 on trained tokens.
        logp: [B, T] log-probs under the policy as it is now (nats).
        old_logp: [B, T] under the policy that sampled.
        advantages: [B, T].
        low: delta in nats for bad tokens, usually 0.02 to 0.05.
        high: delta in nats for good tokens.

    Returns:
        [B, T], 1 or 0.

    Raises:
        ValueError: bad tensors, a negative bound.

    Example:
        >>> old, A = torch.tensor([[0.0001, 0.6]]).log(), torch.ones(1, 2)
        >>> dppo_kl(torch.ones(1, 2), logp=torch.tensor([[0.0003, 0.9]]).log(), old_logp=old, advantages=A)
        tensor([[1., 0.]])
    """
    check(mask, logp=logp, old_logp=old_logp, advantages=advantages)
    check_not_negative(low=low, high=high)
    new, old = zero_outside(logp, mask), zero_outside(old_logp, mask)
    others, before = (-torch.expm1(x).clamp(max=0.0) for x in (new, old))  # 1 - q, 1 - p
    tiny = torch.finfo(new.dtype).tiny
    distance = torch.exp(old) * (old - new) + torch.special.xlogy(before, before / others.clamp(min=tiny))
    good, bad = (advantages > 0) & (new > old), (advantages < 0) & (new < old)
    return _weight(~((good & (distance > high)) | (bad & (distance > low))), logp, mask)


def probability_band(
    mask: Shaped[Tensor, "B T"], *, logp: Float[Tensor, "B T"], old_logp: Float[Tensor, "B T"], bound: float = 0.3
) -> Float[Tensor, "B T"]:
    r"""Leaves out every token whose probability has moved too far, whatever its advantage (:eq:`eq-probability-band`).

    .. math:: m_t = \big[\lvert \pi_t - \pi_{old,t} \rvert \le \delta\big]

    `dppo_tv` stops a token that would move on in the direction in which it has moved; this stops also one that would
    come back, so a token outside the band stays there until other tokens bring it back.

    Chapter: off-policy-in-depth. Source: prime-rl's default loss, which its documentation calls IPO (INTELLECT policy
    optimization; as of autumn 2026). It is not the preference loss IPO, `squared_loss`.

    Args:
        mask: [B, T], 1 on trained tokens.
        logp: [B, T] log-probs under the policy as it is now (nats).
        old_logp: [B, T] under the policy that sampled.
        bound: delta, between 0 and 1, 0.3 in prime-rl.

    Returns:
        [B, T], 1 or 0.

    Raises:
        ValueError: bad tensors, a bound outside 0 to 1.

    Example:
        >>> old = torch.tensor([[0.0001, 0.6, 0.6]]).log()
        >>> probability_band(torch.ones(1, 3), logp=torch.tensor([[0.0003, 0.95, 0.2]]).log(), old_logp=old)
        tensor([[1., 0., 0.]])
    """
    check(mask, logp=logp, old_logp=old_logp)
    check_share(bound=bound)
    moved = torch.exp(zero_outside(logp, mask)) - torch.exp(zero_outside(old_logp, mask))
    return _weight(moved.abs() <= bound, logp, mask)


def high_entropy(
    mask: Shaped[Tensor, "B T"], *, entropy: Float[Tensor, "B T"], totals: Totals | None = None, share: float = 0.2
) -> Float[Tensor, "B T"]:
    r"""Trains only on the share of tokens with the highest entropy (:eq:`eq-high-entropy`).

    .. math:: m_t = \big[H_t \ge Q_{1 - \text{share}}(H)\big]

    Most tokens follow from those before them. The few with a high entropy decide how the completion goes on.

    Chapter: dapo. Source: Wang et al., arXiv 2506.01939; TRL's `top_entropy_quantile`.

    Args:
        mask: [B, T], 1 on trained tokens of a whole optimiser step, since a part would have another quantile.
        entropy: [B, T] of the policy as it is now (nats).
        totals: counts of the whole optimiser step, to check that the mask is all of it; default: not checked.
        share: tokens that are kept, between 0 and 1, usually 0.2.

    Returns:
        [B, T], 1 or 0.

    Raises:
        ValueError: a part of an optimiser step, bad tensors, a share outside 0 to 1.

    Example:
        >>> high_entropy(torch.ones(1, 5), entropy=torch.tensor([[0.1, 0.2, 2.0, 0.0, 0.3]]))
        tensor([[0., 0., 1., 0., 0.]])
    """
    check(mask, entropy=entropy)
    check_share(share=share)
    if totals is not None:
        _check_whole(totals, mask, "high_entropy takes a quantile")
    entropy = entropy.detach()
    trained = entropy[mask != 0]
    if len(trained) <= 2**24:
        least = torch.quantile(trained, 1 - share)
    else:  # torch.quantile takes no more. The least entropy that is not below the quantile keeps the same tokens
        least = trained.sort(descending=True).values[int(share * (len(trained) - 1))]
    return _weight(entropy >= least, entropy, mask)


def clip_cov(
    mask: Shaped[Tensor, "B T"],
    *,
    logp: Float[Tensor, "B T"],
    old_logp: Float[Tensor, "B T"],
    advantages: Float[Tensor, "B T"],
    totals: Totals | None = None,
    share: float = 2e-4,
    low: float = 1.0,
    high: float = 5.0,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    seed: int = 1,
) -> Float[Tensor, "B T"]:
    r"""Leaves out a few tokens, drawn among those that lower the entropy most (:eq:`eq-clip-cov`).

    .. math:: m_t = 0 \;\text{ for }\; \lfloor \text{share} \cdot N \rfloor \text{ (at least one) of }\;
        \{t : \text{low} < (A_t - \bar A)(\log\pi_t - \overline{\log\pi}) < \text{high}\}

    Likely tokens with a high advantage are what makes an entropy fall: to first order it falls with the covariance of
    the two. Tokens that the clip stops already are not drawn.

    Chapter: dapo-in-depth. Source: Cui et al., arXiv 2505.22617; verl's `clip_cov`. Differs from verl:
    a fixed seed, and the means are those of the whole step.

    Args:
        mask: [B, T], 1 on trained tokens of a whole optimiser step: its means are the statistic.
        logp: [B, T] log-probs under the policy as it is now (nats).
        old_logp: [B, T] under the policy that sampled.
        advantages: [B, T].
        totals: counts of the whole optimiser step, to check that the mask is all of it; default: not checked.
        share: of the tokens, to be left out.
        low: smallest product from which a token may be drawn.
        high: largest one, above low.
        clip_low: the gate's clip range below 1, to know which tokens it stops.
        clip_high: the same above 1.
        seed: of the draw, at least 1.

    Returns:
        [B, T], 1 or 0.

    Raises:
        ValueError: a part of an optimiser step, bad tensors, a share outside 0 to 1, a band without width.

    Example:
        >>> logp, A = torch.tensor([[0.0, -4.0, 0.0, -4.0]]), torch.tensor([[1.0, 1.0, -1.0, -1.0]])
        >>> clip_cov(torch.ones(1, 4), logp=logp, old_logp=logp, advantages=A, share=0.5)
        tensor([[0., 1., 1., 0.]])
    """
    check(mask, logp=logp, old_logp=old_logp, advantages=advantages)
    check_share(share=share)
    check_not_negative(low=low, high=high, clip_low=clip_low, clip_high=clip_high)
    check_count(seed=seed)
    if not high > low:
        raise ValueError(f"low is {low} and high {high}: tokens are drawn between them, low below high")
    if totals is not None:
        _check_whole(totals, mask, "clip_cov takes means")
    trained, new = mask != 0, zero_outside(logp, mask).detach()
    ratio = torch.exp(new - zero_outside(old_logp, mask))
    stopped = torch.where(advantages > 0, ratio > 1 + clip_high, (advantages < 0) & (ratio < 1 - clip_low))
    product = (advantages - advantages[trained].mean()) * (new - new[trained].mean())
    among = (trained & ~stopped & (product > low) & (product < high)).nonzero()
    order = torch.randperm(len(among), generator=torch.Generator().manual_seed(seed)).to(among.device)
    drawn = among[order[: max(int(share * trained.sum()), 1)]]
    return _weight(torch.ones_like(trained).index_put(tuple(drawn.T), torch.zeros_like(trained[0, 0])), logp, mask)


def _weight(keep: Tensor, like: Tensor, mask: Tensor) -> Tensor:
    return zero_outside(keep.to(like.dtype), mask)
