r"""The second table: learning from pairs of completions, of which one was preferred. Cells, rows, batch and loss.

    each completion --score--> two numbers --difference--> gap --loss--> one number a pair --mean--> loss

A row chooses the score of a completion, its reference, the source of the rejected completion and the loss of a gap.
The rest is the same for all rows, and nothing here depends on a row's name. Nothing is sampled during training, so
there is no ratio, no gate and no advantage: this is supervised learning on comparisons.

A score is a reward model's number, or the log-ratio of the policy to its reference; the policy is then its own reward
model. Only the gap counts, so a term that is the same for both completions of a prompt cancels.

Shapes: B pairs; T tokens, padded on the right. Chosen and rejected completions may have different T.
"""

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn.functional import logsigmoid

from .functional import masked
from .functional.checks import (
    check,
    check_completions,
    check_count,
    check_fits,
    check_floating,
    check_logprobs,
    check_mask,
    check_not_negative,
    check_pair,
    check_positive,
    check_rows,
    check_share,
    check_tensor,
    check_tokens,
)

_READABLE = ("scores", "logp", "ref_logp", "mask")  # what a score may read
_LOSS_READS = ("chosen", "rejected", "anchor")  # what a loss may read in the place of the gap
_PER_PAIR = ("margin", "anchor")  # constants, one a pair
_REFERENCES = (None, "frozen", "previous")
_SOURCES = ("data", "own")

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
    return _square("the distance of a gap", gap - 1 / (2 * beta))


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
    return _square("the sum of two scores", chosen + rejected)


def _check_rows(name: str, x: Tensor) -> None:
    check_floating(name, x)
    if x.dim() != 1 or not len(x):
        raise ValueError(f"{name} has shape {tuple(x.shape)}, expected [B]: one number for each pair")
    if not torch.isfinite(x).all():
        raise ValueError(f"{name} holds a number that is not finite: look for an overflow or a damaged model")


def _square(what: str, x: Tensor) -> Tensor:
    check_fits(f"the square of {what}", x**2)
    return x**2


@dataclass(frozen=True)
class PairwiseAlgorithm:
    """One row of the second table. Cells are plain functions or partials of one.

    Make a variant with ``dataclasses.replace(PAIRWISE["dpo"], loss=partial(logistic_loss, beta=0.5))``.

    Args:
        score: what is a completion worth? (its arguments say by name what it reads)
        loss: what does a gap between two completions cost? A loss that names `chosen` and `rejected` reads the two
            scores instead, and one that names `anchor` the number of the batch that both are held against.
        reference: which policy is the log-ratio measured against? None, "frozen" (the start), or "previous" (the policy
            at the beginning of the current iteration).
        rejected: where does the rejected completion come from? "data", or "own": a sample from the reference.
        center: coefficient of the loss that keeps the scores' mean near zero, usually 0 or 0.01.

    Raises:
        ValueError: a cell that is not a function, a combination that has no meaning.

    Example:
        >>> sorted(PAIRWISE["dpo"].needs), sorted(PAIRWISE["bradley_terry"].needs)
        (['logp', 'mask', 'ref_logp'], ['scores'])
    """

    score: Callable[..., Tensor]
    loss: Callable[..., Tensor]
    reference: str | None = None
    rejected: str = "data"
    center: float = 0.0

    def __post_init__(self) -> None:
        for column in ("score", "loss"):
            if not callable(getattr(self, column)):
                raise ValueError(
                    f"{column} is {getattr(self, column)!r}, expected a function, such as those of rlhf_minimal.pairs"
                )
        if not self.needs or not self.needs <= set(_READABLE):
            raise ValueError(
                f"score says that it reads {', '.join(sorted(self.needs)) or 'nothing'}: name its arguments after what "
                f"it reads, out of {', '.join(_READABLE)}, and set options with partial"
            )
        for name, allowed in (("reference", _REFERENCES), ("rejected", _SOURCES)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is {getattr(self, name)!r}, expected one of {', '.join(map(repr, allowed))}")
        if ("ref_logp" in self.needs) != (self.reference is not None):
            raise ValueError(
                f"reference is {self.reference!r}, and the score reads {', '.join(sorted(self.needs))}: a score that "
                "reads ref_logp has a reference, and no other has one"
            )
        if self.rejected == "own" and self.reference is None:
            raise ValueError("rejected is 'own', but there is no reference to sample them from: set reference")
        check_not_negative(center=self.center)

    @property
    def needs(self) -> frozenset[str]:
        """What the score reads of each completion. With "ref_logp" in it, a training loop runs the reference."""
        return _required(self.score)

    @property
    def loss_needs(self) -> frozenset[str]:
        """What the loss reads in the place of the gap; empty for a loss of the gap."""
        return _required(self.loss) & frozenset(_LOSS_READS)


def _required(cell: Callable[..., Tensor]) -> frozenset[str]:
    """The names of the arguments without a default; none where a function of C does not say them."""
    try:
        parameters = inspect.signature(cell).parameters.values()
    except ValueError:
        return frozenset()
    return frozenset(p.name for p in parameters if p.default is p.empty)


PAIRWISE: dict[str, PairwiseAlgorithm] = {
    # A reward model: Bradley and Terry 1952, as in InstructGPT (Ouyang et al., arXiv 2203.02155, eq. 1, there
    # averaged over all pairs of a prompt's K completions).
    "bradley_terry": PairwiseAlgorithm(given_score, logistic_loss),
    # Rafailov et al., arXiv 2305.18290, eq. 7: Bradley-Terry with beta log pi/pi_ref for the score. Its optimum is the
    # optimum of KL-regularised RL. Beta .1 is the paper's default.
    "dpo": PairwiseAlgorithm(log_ratio, partial(logistic_loss, beta=0.1), reference="frozen"),
    # Azar et al., arXiv 2310.12036, eq. 17, with the log-ratio of whole completions, as printed. TRL divides it by the
    # length (score=contrib.pairs.mean_log_ratio), because the authors said that they did; OpenRLHF does not. Beta is
    # the paper's tau; .1 is our choice.
    "ipo": PairwiseAlgorithm(log_ratio, partial(squared_loss, beta=0.1), reference="frozen"),
    # Chen et al., arXiv 2401.01335: DPO between the data and the policy's own samples, repeated in each iteration.
    # Beta (their lambda) is .1 in the authors' first three iterations and 5 in their fourth.
    "spin": PairwiseAlgorithm(log_ratio, partial(logistic_loss, beta=0.1), reference="previous", rejected="own"),
}


@dataclass(frozen=True)
class Pairs:
    """Two completions for each of B prompts, the preferred one first, validated when it is made.

    Give what the row's score reads: scores, or log-probs and masks. Reference and margin are constants; values under a
    zero mask are never read. Half precision is raised to float32.

    Args:
        chosen_scores: [B] a reward model's scores of the preferred completions; carry the gradient.
        rejected_scores: [B] of the others.
        chosen_logp: [B, T] log-probs (nats) under the policy being trained; carry the gradient.
        rejected_logp: [B, T'] likewise.
        chosen_mask: [B, T], 1 on the completion's tokens, its EOS included.
        rejected_mask: [B, T'] likewise.
        ref_chosen_logp: [B, T] under the reference.
        ref_rejected_logp: [B, T'] likewise.
        margin: [B] the smallest gap that a pair should have, in the score's units (arXiv 2307.09288, eq. 2).
        anchor: [B] the batch's number that a loss holds each score against, one number repeated; a constant.
        total: pairs of the optimiser step, if this batch is a part of one; default: B.

    Raises:
        ValueError: nothing to score, half of a pair, shapes or devices that do not fit, a number that is not finite, a
            completion without a token.

    Example:
        >>> pairs = Pairs(chosen_scores=torch.tensor([1.0, 0.0]), rejected_scores=torch.tensor([0.0, 2.0]))
        >>> len(pairs)
        2
    """

    _: dataclasses.KW_ONLY
    chosen_scores: Tensor | None = None
    rejected_scores: Tensor | None = None
    chosen_logp: Tensor | None = None
    rejected_logp: Tensor | None = None
    chosen_mask: Tensor | None = None
    rejected_mask: Tensor | None = None
    ref_chosen_logp: Tensor | None = None
    ref_rejected_logp: Tensor | None = None
    margin: Tensor | None = None
    anchor: Tensor | None = None
    total: int | None = None

    def __post_init__(self) -> None:
        for chosen, rejected in _BOTH_SIDES:
            if (getattr(self, chosen) is None) != (getattr(self, rejected) is None):
                missing = chosen if getattr(self, chosen) is None else rejected
                raise ValueError(f"{missing} is missing: a pair has two completions, pass {chosen} and {rejected}")
        first = self.chosen_scores if self.chosen_logp is None else self.chosen_logp
        if first is None:
            raise ValueError("nothing to score: pass chosen_scores and rejected_scores, or log-probs and masks")
        if (self.chosen_logp is None) != (self.chosen_mask is None):
            raise ValueError("log-probs and masks go together: pass chosen_logp, chosen_mask and both rejected ones")
        if self.ref_chosen_logp is not None and self.chosen_logp is None:
            raise ValueError("ref_chosen_logp is given without chosen_logp: a reference is compared with a policy")
        for name, x in self._tensors():
            check_tensor(name, x)
        for name, x in self._tensors():
            if x.device != first.device:
                raise ValueError(f"{name} is on {x.device} and others on {first.device}: move them to one device")
        rows = first.shape[0] if first.dim() else 0
        if not rows:
            raise ValueError(f"a batch of pairs has shape {tuple(first.shape)}, expected at least one pair")
        for name in ("chosen_scores", "rejected_scores", *_PER_PAIR):
            if getattr(self, name) is not None:
                check_rows(name, getattr(self, name), rows)
        for side in ("chosen", "rejected"):
            mask, logp = getattr(self, f"{side}_mask"), getattr(self, f"{side}_logp")
            if mask is None:
                continue
            check_mask(mask, f"{side}_mask")
            if len(mask) != rows:
                raise ValueError(f"{side}_mask has {len(mask)} rows, expected {rows}: one for each pair")
            check_completions(mask, f"{side}_mask")
            ref = {f"ref_{side}_logp": getattr(self, f"ref_{side}_logp")}
            check_tokens(mask, **{f"{side}_logp": logp}, **{name: x for name, x in ref.items() if x is not None})
        for policy in ("", "ref_"):
            sides = {f"{policy}{side}_logp": side for side in ("chosen", "rejected")}
            if all(getattr(self, name) is not None for name in sides):
                check_logprobs(
                    **{n: getattr(self, n).detach()[getattr(self, f"{side}_mask") != 0] for n, side in sides.items()}
                )
        if self.total is not None:
            check_count(total=self.total)
        for name, x in self._tensors():
            x = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
            object.__setattr__(self, name, x.detach() if name.startswith("ref_") or name in _PER_PAIR else x)

    def __len__(self) -> int:
        first = self.chosen_scores if self.chosen_logp is None else self.chosen_logp
        assert first is not None
        return len(first)

    def _tensors(self) -> list[tuple[str, Tensor]]:
        fields = ((field.name, getattr(self, field.name)) for field in dataclasses.fields(self))
        return [(name, x) for name, x in fields if x is not None and name != "total"]

    def split(self, n: int) -> "list[Pairs]":
        """``n`` micro-batches with the denominator of the whole: their losses sum to the loss of the whole.

        Args:
            n: between 1 and B; pairs are divided in order and as evenly as possible.

        Raises:
            ValueError: an ``n`` out of range.
        """
        check_count(n=n)
        if n > len(self):
            raise ValueError(f"cannot split {len(self)} pairs into {n} micro-batches: n is at most their number")
        total = len(self) if self.total is None else self.total
        parts = torch.arange(len(self)).tensor_split(n)
        return [
            Pairs(**{name: x[part[0] : part[-1] + 1] for name, x in self._tensors()}, total=total) for part in parts
        ]

    def _read(self, side: str, name: str) -> Any:
        """The tensor that a cell calls ``name``, for one side: for the chosen, ref_logp is ref_chosen_logp."""
        return getattr(self, f"ref_{side}_logp" if name == "ref_logp" else f"{side}_{name}")


_BOTH_SIDES = (
    ("chosen_scores", "rejected_scores"),
    ("chosen_logp", "rejected_logp"),
    ("chosen_mask", "rejected_mask"),
    ("ref_chosen_logp", "ref_rejected_logp"),
)


def pairwise_scores(algorithm: PairwiseAlgorithm, pairs: Pairs) -> tuple[Float[Tensor, " B"], Float[Tensor, " B"]]:
    """A row's scores of the chosen and of the rejected completions, before they are compared.

    Watch both during training: a gap may grow while both scores fall.

    Args:
        algorithm: a row of the table.
        pairs: what its score reads.

    Returns:
        [B] and [B], with gradient.

    Raises:
        ValueError: something that the score reads is missing.

    Example:
        >>> pairs = Pairs(chosen_scores=torch.tensor([1.0, 0.0]), rejected_scores=torch.tensor([0.0, 2.0]))
        >>> pairwise_scores(PAIRWISE["bradley_terry"], pairs)
        (tensor([1., 0.]), tensor([0., 2.]))
    """
    if not isinstance(algorithm, PairwiseAlgorithm):
        raise ValueError(f"algorithm is {algorithm!r}, expected a PairwiseAlgorithm: a row is PAIRWISE[name]")
    if not isinstance(pairs, Pairs):
        raise ValueError(f"pairs is a {type(pairs).__name__}, expected Pairs(chosen_..., rejected_..., ...)")
    chosen, rejected = (_score(algorithm, pairs, side) for side in ("chosen", "rejected"))
    return chosen, rejected


def pairwise_gap(algorithm: PairwiseAlgorithm, pairs: Pairs) -> Float[Tensor, " B"]:
    r"""How far each chosen score is above the rejected one (:eq:`eq-gap`), minus the margin.

    .. math:: g = s(y_w) - s(y_l) - m

    Positive if the row ranks a pair as its label does, by at least the margin. A term that is the same in both scores
    of a pair cancels: a constant in a reward model's scores, the prompt's partition function in a policy's log-ratios.

    Chapter: reward-models; choosing for log-ratios.

    Args:
        algorithm: a row of the table.
        pairs: what its score reads.

    Returns:
        [B] in the score's units: nats for a log-ratio. With gradient.

    Raises:
        ValueError: something that the score reads is missing.

    Example:
        >>> pairs = Pairs(chosen_scores=torch.tensor([1.0, 0.0]), rejected_scores=torch.tensor([0.0, 2.0]))
        >>> pairwise_gap(PAIRWISE["bradley_terry"], pairs)
        tensor([ 1., -2.])
    """
    chosen, rejected = pairwise_scores(algorithm, pairs)
    return _gap(chosen, rejected, pairs)


def pairwise_loss(algorithm: PairwiseAlgorithm, pairs: Pairs) -> Float[Tensor, ""]:
    r"""The loss of one optimiser step or micro-batch, to MINIMISE (:eq:`eq-pairwise-loss`).

    .. math:: L = \frac1B \sum_i \Big[ \ell(g_i) + c\, \big(s(y_w) + s(y_l)\big)^2 \Big]

    Chapter: reward-models; choosing for DPO and IPO, self-play for SPIN.

    Args:
        algorithm: a row of the table.
        pairs: what its score reads.

    Returns:
        Scalar with a gradient in the scores or log-probs: the mean over pairs. A logistic loss of
        gaps that are 0, as at DPO's first step, is log 2.

    Raises:
        ValueError: something that the score reads is missing; a loss that is not finite.

    Example:
        >>> pairs = Pairs(chosen_scores=torch.tensor([1.0, 0.0]), rejected_scores=torch.tensor([0.0, 2.0]))
        >>> pairwise_loss(PAIRWISE["bradley_terry"], pairs)
        tensor(1.2201)
    """
    chosen, rejected = pairwise_scores(algorithm, pairs)
    losses = _losses(algorithm, chosen, rejected, pairs)  # [B]
    if algorithm.center:
        losses = losses + algorithm.center * centering_loss(chosen, rejected)
    loss = losses.sum() / (len(pairs) if pairs.total is None else pairs.total)
    if not torch.isfinite(loss):
        raise ValueError(f"the loss is {loss.item()}: the scores exceed what this precision can hold")
    return loss


def _score(algorithm: PairwiseAlgorithm, pairs: Pairs, side: str) -> Tensor:
    given = {name: pairs._read(side, name) for name in algorithm.needs}
    missing = sorted(name for name, x in given.items() if x is None)
    if missing:
        raise ValueError(f"this algorithm needs {missing[0]}: pass Pairs(...) with {_HOW_TO_GIVE[missing[0]]}")
    score = algorithm.score(**given)
    check_rows("score", score, len(pairs))
    return score


_HOW_TO_GIVE = {
    "scores": "chosen_scores and rejected_scores [B], a reward model's",
    "logp": "chosen_logp and rejected_logp [B, T], the policy's",
    "mask": "chosen_mask and rejected_mask [B, T]",
    "ref_logp": "ref_chosen_logp and ref_rejected_logp [B, T], the reference's",
}


def _losses(algorithm: PairwiseAlgorithm, chosen: Tensor, rejected: Tensor, pairs: Pairs) -> Tensor:
    if not algorithm.loss_needs:
        return algorithm.loss(_gap(chosen, rejected, pairs))
    if pairs.margin is not None:
        raise ValueError("this loss reads the two scores and no gap, and a margin belongs to a gap: leave margin out")
    if "anchor" in algorithm.loss_needs and pairs.anchor is None:
        raise ValueError("this algorithm needs anchor: pass Pairs(..., anchor=...) [B], one number repeated")
    given = {"chosen": chosen, "rejected": rejected, "anchor": pairs.anchor}
    return algorithm.loss(**{name: given[name] for name in algorithm.loss_needs})


def _gap(chosen: Tensor, rejected: Tensor, pairs: Pairs) -> Tensor:
    gap = chosen - rejected
    return gap if pairs.margin is None else gap - pairs.margin
