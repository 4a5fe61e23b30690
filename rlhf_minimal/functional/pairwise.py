r"""Cells of the second table: what a response is worth, and what it costs to rank the wrong one of two higher.

    a score for each of two responses  -->  gap = score of the chosen - score of the rejected  -->  loss of the gap

A score is a reward model's number, or the log-ratio of the policy and its reference: then the policy is its own reward
model. Either way only the gap counts, so whatever a prompt adds to both of its responses drops out.
"""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn.functional import logsigmoid

from . import masked
from .checks import check, check_floating, check_positive, check_responses, check_same_shape, check_share

# ---- what is a response worth? ----------------------------------------------------------------------------------


def given_score(scores: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
    r"""The number that a reward model has given the response (:eq:`eq-given-score`).

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
    r"""How much likelier the policy finds the whole response than its reference does (:eq:`eq-log-ratio`).

    .. math:: s = \sum_t \big(\log \pi_t - \log \pi_{ref,t}\big) = \log \frac{\pi(y \mid x)}{\pi_{ref}(y \mid x)}

    Times beta it is the reward for which the policy would be the optimum of KL-regularised RL, up to a constant of the
    prompt that no gap contains. A sum, so a long response has more room to gain than a short one.

    Chapter: choosing (DPO), self-play (SPIN). Source: DPO, arXiv 2305.18290, eq. 5.

    Args:
        logp: [B, T] log-probs under the policy being trained, with gradient.
        ref_logp: [B, T] under the reference, a constant.
        mask: [B, T], 1 on the response's tokens, its EOS included.

    Returns:
        [B] in nats; 0 while the policy is its reference.

    Raises:
        ValueError: bad shapes or dtypes, a non-finite trained token, a response without a token.

    Example:
        >>> log_ratio(torch.tensor([[-1.0, -1.0]]), torch.tensor([[-2.0, -3.0]]), torch.ones(1, 2))
        tensor([3.])
    """
    check(mask, logp=logp, ref_logp=ref_logp)
    check_responses(mask)
    return masked.zero_outside(logp - ref_logp.detach(), mask).sum(-1)


def mean_log_ratio(
    logp: Float[Tensor, "B T"], ref_logp: Float[Tensor, "B T"], mask: Shaped[Tensor, "B T"]
) -> Float[Tensor, " B"]:
    r"""The same a token (:eq:`eq-mean-log-ratio`): long and short responses stand on one scale.

    .. math:: s = \frac{1}{|y|} \sum_t \big(\log \pi_t - \log \pi_{ref,t}\big)

    What TRL takes for IPO, on its authors' word. The closed forms of DPO and IPO are those of the sum: with a mean the
    leash is a divergence per token, and beta has another unit.

    Chapter: choosing. Source: TRL's DPOTrainer, `loss_type="ipo"`.

    Args:
        logp: [B, T] log-probs under the policy being trained, with gradient.
        ref_logp: [B, T] under the reference, a constant.
        mask: [B, T], 1 on the response's tokens, its EOS included.

    Returns:
        [B] in nats per token.

    Raises:
        ValueError: bad shapes or dtypes, a non-finite trained token, a response without a token.

    Example:
        >>> mean_log_ratio(torch.tensor([[-1.0, -1.0]]), torch.tensor([[-2.0, -3.0]]), torch.ones(1, 2))
        tensor([1.5000])
    """
    return log_ratio(logp, ref_logp, mask) / masked.lengths(mask)


# ---- what does a gap cost? --------------------------------------------------------------------------------------


def bradley_terry(chosen: Float[Tensor, "*shape"], rejected: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    r"""The probability that the first of two responses is the one preferred (:eq:`eq-bradley-terry`).

    .. math:: P(y_w \succ y_l) = \sigma(s_w - s_l)

    Two numbers decide, and only by their difference: a lead of 1 wins 73 % of the comparisons, one of 3 wins 95 %.

    Chapter: reward-models. Source: Bradley and Terry 1952; InstructGPT, arXiv 2203.02155, eq. 1.

    Args:
        chosen: scores of the first responses, any shape.
        rejected: scores of the others.

    Returns:
        The same shape, between 0 and 1.

    Raises:
        ValueError: scores that are no floating-point tensors, shapes that differ.

    Example:
        >>> bradley_terry(torch.tensor([0.0, 1.0, 3.0]), torch.zeros(3))
        tensor([0.5000, 0.7311, 0.9526])
    """
    check_floating("chosen", chosen)
    check_floating("rejected", rejected)
    check_same_shape(chosen=chosen, rejected=rejected)
    return torch.sigmoid(chosen - rejected)


def logistic_loss(gap: Float[Tensor, " B"], *, beta: float = 1.0, smoothing: float = 0.0) -> Float[Tensor, " B"]:
    r"""How surprising the label is under Bradley-Terry (:eq:`eq-logistic-loss`): a reward model's loss, DPO's, SPIN's.

    .. math:: \ell(g) = -(1 - \epsilon) \log \sigma(\beta g) - \epsilon \log \sigma(-\beta g)

    Its slope is beta times the probability that the model gives to the wrong order, so pairs that are settled pull no
    more. They never pull quite nothing either: where every comparison comes out alike, g grows without end. Smoothing
    (eps, "conservative" DPO) is the share of labels that are taken to be flipped, and ends that at
    log((1 - eps)/eps)/beta.

    Chapter: reward-models; choosing for DPO, self-play for SPIN. Source: InstructGPT, arXiv 2203.02155, eq. 1; DPO,
    arXiv 2305.18290, eq. 7; smoothing: Mitchell, a note on DPO with noisy preferences (2023).

    Args:
        gap: [B] score of the chosen minus score of the rejected response.
        beta: how many units of preference a unit of the gap is; 1 for a reward model, usually 0.01 to 0.5 where the
            score is a log-ratio, and then it is the strength of the leash.
        smoothing: eps, usually 0 to 0.3; below one half, where nothing would be preferred.

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
    r"""How far the gap is from a lead of 1/(2 beta) (:eq:`eq-squared-loss`): IPO.

    .. math:: \ell(g) = \Big(g - \frac{1}{2\beta}\Big)^2

    A pair that leads by enough is left alone, and one that leads by more is pulled back. So the leash holds even where
    every comparison comes out alike, which is where the logistic loss lets go of it.

    Chapter: choosing. Source: Azar et al., arXiv 2310.12036, eq. 17 (their tau is this beta).

    Args:
        gap: [B] score of the chosen minus score of the rejected response, in nats.
        beta: strength of the leash, usually 0.01 to 1.

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
    r"""How far a pair of scores is from having mean zero (:eq:`eq-centering-loss`).

    .. math:: (s_w + s_l)^2

    Gaps leave the level of the scores open. This settles it, so that one reward model's numbers mean the same for every
    prompt. Of a single pair it leaves the gap alone; a response that meets many others is pulled towards zero a little.

    Chapter: reward-models. Source: Eisenstein et al., arXiv 2312.09244, eq. 2.

    Args:
        chosen: [B] scores of the preferred responses.
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
    check_same_shape(chosen=chosen, rejected=rejected)
    return (chosen + rejected) ** 2


def _check_rows(name: str, x: Tensor) -> None:
    check_floating(name, x)
    if x.dim() != 1 or not len(x):
        raise ValueError(f"{name} has shape {tuple(x.shape)}, expected [B]: one number for each pair")
    if not torch.isfinite(x).all():
        raise ValueError(f"{name} holds a number that is not finite: look for an overflow or a damaged model")
