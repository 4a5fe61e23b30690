r"""The aggregate column: who counts how much when [B, T] becomes one number?

Denominators are a property of the whole optimiser batch, never of a micro-batch: they are given as `Totals`, so that
the losses of micro-batches sum to the loss of the whole. Without totals the tensor given is the whole batch.
Arguments and errors are those of `contracts.AggregateCell`.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from . import masked
from .checks import check, check_count, check_tokens
from .masked import lengths, zero_outside


@dataclass(frozen=True)
class Totals:
    """Denominators of one optimiser step.

    Args:
        sequences: rows, including those without a trained token (a truncated row that is masked out).
        tokens: trained tokens.
        budget: tokens a completion was allowed; never the padded width, which depends on the batch.
        prompts: prompts, those without a trained token included.

    Raises:
        ValueError: a budget or a number of prompts that is not a whole number of at least 1.

    Example:
        >>> Totals.of(torch.tensor([[1, 1], [1, 0]]), budget=8)
        Totals(sequences=2, tokens=3, budget=8, prompts=None)
    """

    sequences: int
    tokens: int
    budget: int | None = None
    prompts: int | None = None

    def __post_init__(self) -> None:
        if self.budget is not None:
            check_count(budget=self.budget)
        if self.prompts is not None:
            check_count(prompts=self.prompts)

    @classmethod
    def of(cls, mask: Shaped[Tensor, "B T"], budget: int | None = None, *, prompts: int | None = None) -> "Totals":
        """Count a mask that is the whole optimiser batch."""
        return cls(mask.shape[0], int(lengths(mask).sum()), budget, prompts)


def token_mean(
    x: Float[Tensor, "B T"], mask: Shaped[Tensor, "B T"], *, totals: Totals | None = None
) -> Float[Tensor, ""]:
    r"""Every token of the batch weighs the same (:eq:`eq-token-mean`), as in DAPO.

    .. math:: \frac{1}{\sum_i |o_i|} \sum_i \sum_t x_{i,t}

    A completion's total weight grows with its length.

    Chapter: dapo. Source: arXiv 2503.14476, eq. 8. Differs from the paper: over the batch, as every library does; the
    paper writes it over one prompt's group.

    Example:
        >>> token_mean(torch.tensor([[1.0, 1.0], [4.0, 0.0]]), torch.tensor([[1, 1], [1, 0]]))
        tensor(2.)
    """
    totals = _totals(x, mask, totals)
    return zero_outside(x, mask).sum() / totals.tokens


def sequence_mean(
    x: Float[Tensor, "B T"], mask: Shaped[Tensor, "B T"], *, totals: Totals | None = None
) -> Float[Tensor, ""]:
    r"""Mean within each completion, then over completions (:eq:`eq-sequence-mean`), as in GRPO.

    .. math:: \frac1B \sum_i \frac1{|o_i|} \sum_t x_{i,t}

    Every completion weighs the same, so a token of a long one weighs less: the length bias that Dr. GRPO removes.

    Chapter: grpo; dr-grpo for what it does. Source: arXiv 2402.03300, eq. 3.

    Example:
        >>> sequence_mean(torch.tensor([[1.0, 1.0], [4.0, 0.0]]), torch.tensor([[1, 1], [1, 0]]))
        tensor(2.5000)
    """
    totals = _totals(x, mask, totals)
    return masked.sequence_mean(x, mask).sum() / totals.sequences


def sequence_sum(
    x: Float[Tensor, "B T"], mask: Shaped[Tensor, "B T"], *, totals: Totals | None = None
) -> Float[Tensor, ""]:
    r"""Sum within each completion, mean over completions (:eq:`eq-sequence-sum`): the plain policy gradient.

    .. math:: \frac1B \sum_i \sum_t x_{i,t}

    The sum over tokens *is* the log-probability of the completion, so nothing is normalised away.

    Chapter: policy-gradients. Source: Williams 1992.

    Example:
        >>> sequence_sum(torch.tensor([[1.0, 1.0], [4.0, 0.0]]), torch.tensor([[1, 1], [1, 0]]))
        tensor(3.)
    """
    totals = _totals(x, mask, totals)
    return zero_outside(x, mask).sum() / totals.sequences


def fixed_length(
    x: Float[Tensor, "B T"], mask: Shaped[Tensor, "B T"], *, budget: int | None, totals: Totals | None = None
) -> Float[Tensor, ""]:
    r"""Divide by a constant, the generation budget (:eq:`eq-fixed-length`), as in Dr. GRPO.

    .. math:: \frac1{B L} \sum_i \sum_t x_{i,t}, \qquad L = \text{budget}

    Every token weighs the same in every batch: the plain policy gradient up to one constant.

    Chapter: dr-grpo. Source: arXiv 2503.20783, section 3.2 and its masked_mean listing.

    Args:
        budget: L, tokens a completion was allowed; never the padded width.

    Raises:
        ValueError: no budget.

    Example:
        >>> x, mask = torch.tensor([[1.0, 1.0], [4.0, 0.0]]), torch.tensor([[1, 1], [1, 0]])
        >>> fixed_length(x, mask, budget=6)
        tensor(0.5000)
    """
    totals = _totals(x, mask, totals)
    if budget is None:
        raise ValueError(
            "fixed_length divides by the generation budget, which is missing: pass Batch(..., budget=max_new_tokens),"
            " not the padded width, which changes with the batch"
        )
    check_count(budget=budget)
    return zero_outside(x, mask).sum() / (totals.sequences * budget)


def geometric_mean(
    x: Float[Tensor, "B T"], mask: Shaped[Tensor, "B T"], *, totals: Totals | None = None
) -> Float[Tensor, ""]:
    r"""Geometric mean within each completion, mean over completions (:eq:`eq-geometric-mean`): GMPO.

    .. math:: \frac1B \sum_i \mathrm{sign}(x_i) \Big(\prod_t |x_{i,t}|\Big)^{1/|o_i|}

    With x = clip(w) A and one A a completion this is A times the geometric mean of the clipped ratios: the root
    reduces the influence of a single large ratio. GMPO is GRPO with this mean and a wide clip range in log space.

    Chapter: soft-gates. Source: arXiv 2507.20673, section 3.

    Args:
        x: [B, T] objective per token, of one sign within a row.

    Returns:
        Scalar. A row with a zero (A = 0) counts 0 and has no gradient.

    Raises:
        ValueError: mixed signs within a row.

    Example:
        >>> geometric_mean(torch.tensor([[1.0, 4.0]]), torch.tensor([[1, 1]]))
        tensor(2.)
    """
    totals = _totals(x, mask, totals)
    x, trained = zero_outside(x, mask), mask != 0
    positive, negative = (x > 0).any(-1), (x < 0).any(-1)
    if (positive & negative).any():
        raise ValueError(
            "geometric_mean has no meaning for both signs within one sequence: use an advantage that is "
            "one number per sequence, or another aggregate"
        )
    # Below the smallest normal number a logarithm still exists, but its gradient 1 / x is infinite: treated as 0.
    vanishes = ((x.abs() < torch.finfo(x.dtype).tiny) & trained).any(-1, keepdim=True)
    log_size = torch.where(trained & ~vanishes, x, torch.ones_like(x)).abs().log()  # log 1 = 0: not counted
    size = torch.exp(masked.sequence_mean(log_size, mask))  # [B]
    sign = positive.to(x.dtype) - negative.to(x.dtype)
    return torch.where(vanishes.squeeze(-1), torch.zeros_like(size), sign * size).sum() / totals.sequences


geometric_mean.linear = False  # type: ignore[attr-defined]  # so it cannot average a KL: see Algorithm


def _totals(x: Tensor, mask: Tensor, totals: Totals | None) -> Totals:
    if totals is None:
        check(mask, x=x)
        return Totals.of(mask)
    check_tokens(mask, x=x)
    check_count(sequences=totals.sequences, tokens=totals.tokens)
    return totals
