r"""The trust column: which tokens may be trained on?

A weight [B, T] on the gated objective, 1 = train, 0 = leave out. It may read what a gate cannot: the probabilities and
not only their ratio, the whole sequence, the sampler's log-probs, the entropy (`contracts.TrustCell`). It has no
gradient and changes no denominator: a token of weight 0 is still counted in the mean.
"""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from .aggregation import Totals
from .checks import check, check_not_negative, check_share
from .masked import lengths, sequence_mean, zero_outside


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

    Chapter: mismatch. Source: DeepSeek-V3.2, arXiv 2512.02556. Differs from the paper: the drift is measured from
    the engine that sampled, as in TRL; the paper writes the old policy and gives no number for delta.

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

    Chapter: mismatch. Source: DPPO, arXiv 2602.04879; verl's `dppo_tv`, prime-rl's default loss.

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

    Chapter: mismatch. Source: DPPO, arXiv 2602.04879; verl's `dppo_kl`.

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
    good, bad = (advantages > 0) & (new > old), (advantages <= 0) & (new < old)
    return _weight(~((good & (distance > high)) | (bad & (distance > low))), logp, mask)


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
    here = (len(mask), int(lengths(mask).sum()))
    if totals is not None and here != (totals.sequences, totals.tokens):
        raise ValueError(
            f"high_entropy takes a quantile over the whole optimiser step, {totals.sequences} sequences with "
            f"{totals.tokens} tokens, and got {here[0]} with {here[1]}: train with micro_batches=1 in one process"
        )
    entropy = entropy.detach()
    return _weight(entropy >= torch.quantile(entropy[mask != 0], 1 - share), entropy, mask)


def _weight(keep: Tensor, like: Tensor, mask: Tensor) -> Tensor:
    return zero_outside(keep.to(like.dtype), mask)
