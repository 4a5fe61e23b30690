r"""More rows of the second table: KTO, SimPO and ORPO, with the cells that only they use.

`contrib.PAIRWISE` holds the rows. They are trained, measured and printed as those of `rlhf_minimal.pairs` are:
`train_pairwise(contrib.PAIRWISE["simpo"], ...)`, `table(contrib.PAIRWISE)`.
"""

from functools import partial

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn.functional import logsigmoid

from ..functional import masked
from ..functional.checks import (
    check,
    check_completions,
    check_floating,
    check_not_negative,
    check_pair,
    check_positive,
    check_rows,
)
from ..pairs import PairwiseAlgorithm, log_ratio, logistic_loss

__all__ = ["PAIRWISE", "kto_loss", "margin_loss", "mean_log_ratio", "mean_logp", "odds_ratio_loss"]


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


def mean_logp(logp: Float[Tensor, "B T"], mask: Shaped[Tensor, "B T"]) -> Float[Tensor, " B"]:
    r"""The log-prob per token, without a reference (:eq:`eq-mean-logp`): SimPO, ORPO.

    .. math:: s = \frac{1}{|y|} \sum_t \log \pi_t

    Nothing holds the policy near its start, and no second model has to run.

    Chapter: reward-models-in-depth. Source: SimPO, arXiv 2405.14734, eq. 3.

    Args:
        logp: [B, T] log-probs under the policy being trained, with gradient.
        mask: [B, T], 1 on the completion's tokens, its EOS included.

    Returns:
        [B] in nats per token, at most 0.

    Raises:
        ValueError: bad shapes or dtypes, a non-finite trained token, a completion without a token.

    Example:
        >>> mean_logp(torch.tensor([[-1.0, -3.0]]), torch.ones(1, 2))
        tensor([-2.])
    """
    check(mask, logp=logp)
    check_completions(mask)
    return masked.sequence_mean(logp, mask)


def margin_loss(gap: Float[Tensor, " B"], *, beta: float = 2.0, gamma: float = 1.0) -> Float[Tensor, " B"]:
    r"""The logistic loss of a gap that has to reach a margin (:eq:`eq-margin-loss`): SimPO.

    .. math:: \ell(g) = -\log \sigma(\beta g - \gamma)

    Chapter: reward-models-in-depth. Source: SimPO, arXiv 2405.14734, eq. 6; TRL's CPOTrainer, `loss_type="simpo"`
    and `cpo_alpha=0`.

    Args:
        gap: [B] score of the chosen minus score of the rejected completion.
        beta: factor on the gap, usually 2 to 10.
        gamma: margin, at least 0; usually 0.3 to 1.6 at a beta of 2.

    Returns:
        [B] to minimise, in nats.

    Raises:
        ValueError: a gap that is not [B], not floating or not finite; a beta not above 0, a negative gamma.

    Example:
        >>> margin_loss(torch.tensor([0.5]), beta=2.0, gamma=1.0)
        tensor([0.6931])
    """
    check_floating("gap", gap)
    check_positive(beta=beta)
    check_not_negative(gamma=gamma)
    return logistic_loss(gap - gamma / beta, beta=beta)


def odds_ratio_loss(
    chosen: Float[Tensor, " B"], rejected: Float[Tensor, " B"], *, coef: float = 0.1
) -> Float[Tensor, " B"]:
    r"""Imitates the chosen completion and raises its odds above the rejected one's (:eq:`eq-odds-ratio-loss`): ORPO.

    .. math::
        \ell = -s_w - \lambda \log \sigma\big( \mathrm{logit}\, e^{s_w} - \mathrm{logit}\, e^{s_l} \big),
        \qquad \mathrm{logit}\, p = \log p - \log(1 - p)

    The first term is supervised fine-tuning, so no separate stage of it is needed; it makes the chosen completion
    likely, where a loss of the gap alone may let both fall.

    Chapter: reward-models-in-depth. Source: ORPO, arXiv 2403.07691, eq. 6 and 7. TRL's ORPOTrainer takes the imitation
    over the tokens of the whole batch, prompts included; here it is the mean of each chosen completion.

    Args:
        chosen: [B] mean log-probs of the chosen completions' tokens, below 0.
        rejected: [B] of the others.
        coef: lambda, usually 0.1.

    Returns:
        [B] to minimise, in nats.

    Raises:
        ValueError: scores that are not [B] or not floating, or not below 0 (a probability of 1 has no odds).

    Example:
        >>> half = torch.tensor([0.5]).log()
        >>> odds_ratio_loss(half, half, coef=0.1)
        tensor([0.7625])
    """
    check_pair(chosen=chosen, rejected=rejected)
    check_rows("rejected", rejected, len(chosen))
    check_not_negative(coef=coef)
    for name, x in (("chosen", chosen), ("rejected", rejected)):
        if not (torch.isfinite(x) & (x < 0)).all():
            raise ValueError(
                f"{name} has a mean log-prob that is not finite or not below 0: a completion of probability 1 has no "
                "odds (score=mean_logp gives what this loss reads)"
            )
    odds = [s - torch.log(-torch.expm1(s)) for s in (chosen, rejected)]
    return -chosen - coef * logsigmoid(odds[0] - odds[1])


def kto_loss(
    chosen: Float[Tensor, " B"],
    rejected: Float[Tensor, " B"],
    anchor: Float[Tensor, " B"],
    *,
    beta: float = 0.1,
    good: float = 1.0,
    bad: float = 1.0,
) -> Float[Tensor, " B"]:
    r"""Each completion by itself, better or worse than a common anchor (:eq:`eq-kto-loss`): KTO.

    .. math::
        \ell = \tfrac12 \lambda_{good} \big(1 - \sigma(\beta (s_w - z))\big)
        + \tfrac12 \lambda_{bad} \big(1 - \sigma(\beta (z - s_l))\big)

    No gap: the two need not be of one prompt. The loss is bounded and its slope goes to 0 on both sides, so that a
    completion whose label is surely wrong pulls little, where the logistic loss pulls hardest.

    Chapter: reward-models-in-depth. Source: KTO, arXiv 2402.01306, eq. 8; TRL's KTOTrainer, whose mean is over
    completions.

    Args:
        chosen: [B] log-ratios of wanted completions.
        rejected: [B] log-ratios of unwanted ones.
        anchor: [B] z, a constant of the batch: the mean log-ratio of completions under prompts that they do not answer,
            at least 0.
        beta: factor on the log-ratios, usually 0.1.
        good: weight of wanted completions, for data with more of one kind.
        bad: weight of unwanted ones.

    Returns:
        [B] to minimise, between 0 and (good + bad)/2.

    Raises:
        ValueError: tensors that are not [B] or not floating, a beta not above 0, a negative weight.

    Example:
        >>> kto_loss(torch.zeros(1), torch.zeros(1), torch.zeros(1))
        tensor([0.5000])
    """
    check_pair(chosen=chosen, rejected=rejected)
    check_pair(chosen=chosen, anchor=anchor)
    for name, x in (("chosen", chosen), ("rejected", rejected), ("anchor", anchor)):
        check_rows(name, x, len(anchor))
    check_positive(beta=beta)
    check_not_negative(good=good, bad=bad)
    z = anchor.detach()
    return 0.5 * (good * torch.sigmoid(beta * (z - chosen)) + bad * torch.sigmoid(beta * (rejected - z)))


PAIRWISE: dict[str, PairwiseAlgorithm] = {
    # Ethayarajh et al., arXiv 2402.01306, on data that come in pairs. Beta .1 is the paper's and TRL's default.
    "kto": PairwiseAlgorithm(log_ratio, partial(kto_loss, beta=0.1), reference="frozen"),
    # Meng et al., arXiv 2405.14734. Beta and gamma are a choice within the ranges that they search.
    "simpo": PairwiseAlgorithm(mean_logp, partial(margin_loss, beta=2.0, gamma=1.0)),
    # Hong et al., arXiv 2403.07691. Lambda .1 is TRL's default.
    "orpo": PairwiseAlgorithm(mean_logp, partial(odds_ratio_loss, coef=0.1)),
}
