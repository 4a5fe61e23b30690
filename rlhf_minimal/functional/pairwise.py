r"""Cells of the second table: the score of a completion, and the loss of a gap between two scores.

    a score for each of two completions  -->  gap = score of the chosen - score of the rejected  -->  loss of the gap

A score is a reward model's number, or the log-ratio of the policy to its reference; the policy is then its own reward
model. Only the gap counts, so a term that is the same for both completions of a prompt cancels.
"""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn.functional import logsigmoid

from . import masked
from .checks import check, check_completions, check_floating, check_pair, check_positive, check_share

# ---- scores ---------------------------------------------------------------------------------------------------------


def given_score(scores: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
    r"""A reward model's score of the completion (:eq:`eq-given-score`).

    .. math:: s = r_\phi(x, y)

    Chapter: reward-models. Source: InstructGPT, arXiv 2203.02155, section 3.5.

    Args:
        scores: [B] the head's raw scores, with gradient.

    Returns:
        [B], the same.

    Raises:
        ValueError: scores that are not [B] and floating, or not finite.

    Example:
        >>> given_score(torch.tensor([0.5, -1.0]))
        tensor([ 0.5000, -1.0000])
    """
    _check_rows("scores", scores)
    return scores


def log_ratio(
    logp: Float[Tensor, "B T"], ref_logp: Float[Tensor, "B T"], mask: Shaped[Tensor, "B T"]
) -> Float[Tensor, " B"]:
    r"""How much likelier the whole completion is under the policy than under the reference (:eq:`eq-log-ratio`).

    .. math:: s = \sum_t \big(\log \pi_t - \log \pi_{ref,t}\big) = \log \frac{\pi(y \mid x)}{\pi_{ref}(y \mid x)}

    Times beta it is the reward for which the policy is the optimum of KL-regularised RL, up to a constant for each
    prompt, which cancels in the gap. It is a sum, so the score of a long completion can change more than a short one's.

    Chapter: choosing (DPO), self-play (SPIN). Source: DPO, arXiv 2305.18290, eq. 5.

    Args:
        logp: [B, T] log-probs under the policy being trained, with gradient.
        ref_logp: [B, T] under the reference, a constant.
        mask: [B, T], 1 on the completion's tokens, its EOS included.

    Returns:
        [B] in nats; 0 while the policy is its reference.

    Raises:
        ValueError: bad shapes or dtypes, a non-finite trained token, a completion without a token.

    Example:
        >>> log_ratio(torch.tensor([[-1.0, -1.0]]), torch.tensor([[-2.0, -3.0]]), torch.ones(1, 2))
        tensor([3.])
    """
    check(mask, logp=logp, ref_logp=ref_logp)
    check_completions(mask)
    return masked.zero_outside(logp - ref_logp.detach(), mask).sum(-1)


def mean_log_ratio(
    logp: Float[Tensor, "B T"], ref_logp: Float[Tensor, "B T"], mask: Shaped[Tensor, "B T"]
) -> Float[Tensor, " B"]:
    r"""The log-ratio per token (:eq:`eq-mean-log-ratio`): long and short completions have scores on one scale.

    .. math:: s = \frac{1}{|y|} \sum_t \big(\log \pi_t - \log \pi_{ref,t}\big)

    TRL uses it for IPO, because IPO's authors said that they did. The closed forms of DPO and IPO hold for the sum:
    with a mean, the KL penalty is per token and beta has another unit.

    Chapter: choosing. Source: TRL's DPOTrainer, `loss_type="ipo"`.

    Args:
        logp: [B, T] log-probs under the policy being trained, with gradient.
        ref_logp: [B, T] under the reference, a constant.
        mask: [B, T], 1 on the completion's tokens, its EOS included.

    Returns:
        [B] in nats per token.

    Raises:
        ValueError: bad shapes or dtypes, a non-finite trained token, a completion without a token.

    Example:
        >>> mean_log_ratio(torch.tensor([[-1.0, -1.0]]), torch.tensor([[-2.0, -3.0]]), torch.ones(1, 2))
        tensor([1.5000])
    """
    return log_ratio(logp, ref_logp, mask) / masked.lengths(mask)


# ---- losses of a gap -------------------------------------------------------------------------------------------------


def bradley_terry(chosen: Float[Tensor, "*shape"], rejected: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    r"""The probability that the first of two completions is preferred (:eq:`eq-bradley-terry`).

    .. math:: P(y_w \succ y_l) = \sigma(s_w - s_l)

    Only the difference of the scores counts: with a gap of 1 the first is preferred in 73 % of the comparisons, with 3
    in 95 %.

    Chapter: reward-models. Source: Bradley and Terry 1952; InstructGPT, arXiv 2203.02155, eq. 1.

    Args:
        chosen: scores of the first completions, any shape.
        rejected: scores of the others.

    Returns:
        The same shape, between 0 and 1.

    Raises:
        ValueError: scores that are no floating-point tensors, shapes that differ.

    Example:
        >>> bradley_terry(torch.tensor([0.0, 1.0, 3.0]), torch.zeros(3))
        tensor([0.5000, 0.7311, 0.9526])
    """
    check_pair(chosen=chosen, rejected=rejected)
    return torch.sigmoid(chosen - rejected)


def logistic_loss(gap: Float[Tensor, " B"], *, beta: float = 1.0, smoothing: float = 0.0) -> Float[Tensor, " B"]:
    r"""The label's negative log-likelihood under Bradley-Terry (:eq:`eq-logistic-loss`): reward models, DPO, SPIN.

    .. math:: \ell(g) = -(1 - \epsilon) \log \sigma(\beta g) - \epsilon \log \sigma(-\beta g)

    Its slope is beta times the probability that the model gives to the wrong order, so a pair with a large gap has
    almost no gradient. The gradient is never 0, though: if every comparison has the same result, g grows without limit.
    Smoothing (eps, "conservative" DPO) is the share of labels assumed to be flipped; g then ends at
    log((1 - eps)/eps)/beta.

    Chapter: reward-models; choosing for DPO, self-play for SPIN. Source: InstructGPT, arXiv 2203.02155, eq. 1; DPO,
    arXiv 2305.18290, eq. 7; smoothing: Mitchell, a note on DPO with noisy preferences (2023).

    Args:
        gap: [B] score of the chosen minus score of the rejected completion.
        beta: factor on the gap; 1 for a reward model, usually 0.01 to 0.5 for a log-ratio, where it is the coefficient
            of the KL penalty.
        smoothing: eps, usually 0 to 0.3, below 0.5.

    Returns:
        [B] to minimise, in nats; log 2 at a gap of 0.

    Raises:
        ValueError: a gap that is not [B], not floating or not finite; a beta not above 0, a smoothing out of range.

    Example:
        >>> logistic_loss(torch.tensor([0.0, 2.0]))
        tensor([0.6931, 0.1269])
    """
    _check_rows("gap", gap)
    check_positive(beta=beta)
    check_share(smoothing=smoothing)
    if smoothing >= 0.5:
        raise ValueError(f"smoothing is {smoothing!r}, expected less than 0.5: half the labels flipped say nothing")
    return -(1 - smoothing) * logsigmoid(beta * gap) - smoothing * logsigmoid(-beta * gap)


def squared_loss(gap: Float[Tensor, " B"], *, beta: float) -> Float[Tensor, " B"]:
    r"""The squared distance of the gap from 1/(2 beta) (:eq:`eq-squared-loss`): IPO.

    .. math:: \ell(g) = \Big(g - \frac{1}{2\beta}\Big)^2

    A gap of 1/(2 beta) has no gradient, and a larger one is made smaller. So the KL penalty stays effective even if
    every comparison has the same result, where the logistic loss lets the gap grow without limit.

    Chapter: choosing. Source: Azar et al., arXiv 2310.12036, eq. 17 (their tau is this beta).

    Args:
        gap: [B] score of the chosen minus score of the rejected completion, in nats.
        beta: coefficient of the KL penalty, usually 0.01 to 1.

    Returns:
        [B] to minimise, in squared nats.

    Raises:
        ValueError: a gap that is not [B], not floating or not finite; a beta not above 0.

    Example:
        >>> squared_loss(torch.tensor([0.0, 5.0, 6.0]), beta=0.1)
        tensor([25.,  0.,  1.])
    """
    _check_rows("gap", gap)
    check_positive(beta=beta)
    return (gap - 1 / (2 * beta)) ** 2


def centering_loss(chosen: Float[Tensor, " B"], rejected: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
    r"""The square of a pair's sum of scores (:eq:`eq-centering-loss`).

    .. math:: (s_w + s_l)^2

    A gap does not change if a constant is added to both scores. This loss fixes that constant, so that scores of
    different prompts can be compared. It has no gradient in the gap of a single pair; a completion that is compared
    with many others is moved a little towards 0.

    Chapter: reward-models. Source: Eisenstein et al., arXiv 2312.09244, eq. 2.

    Args:
        chosen: [B] scores of the preferred completions.
        rejected: [B] scores of the others.

    Returns:
        [B] to minimise, in squared units of the score.

    Raises:
        ValueError: scores that are not [B], not floating or not finite; shapes that differ.

    Example:
        >>> centering_loss(torch.tensor([3.0, 1.0]), torch.tensor([1.0, -1.0]))
        tensor([16.,  0.])
    """
    _check_rows("chosen", chosen)
    _check_rows("rejected", rejected)
    check_pair(chosen=chosen, rejected=rejected)
    return (chosen + rejected) ** 2


def _check_rows(name: str, x: Tensor) -> None:
    check_floating(name, x)
    if x.dim() != 1 or not len(x):
        raise ValueError(f"{name} has shape {tuple(x.shape)}, expected [B]: one number for each pair")
    if not torch.isfinite(x).all():
        raise ValueError(f"{name} holds a number that is not finite: look for an overflow or a damaged model")
