"""GSPO's ratio of a completion."""

import torch
from torch import Generator, Tensor

from ..draws import any_batch, batch, books_batch, integer, with_holes
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given


def my_sequence_ratio(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    """Three times [B, T] -> [B]: one ratio a completion."""
    drift = ((logp - old_logp) * mask).sum(1) / mask.sum(1)
    return drift.exp()


def _product(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    return ((logp - old_logp) * mask).sum(1).exp()


def _arithmetic(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    return ((logp - old_logp).exp() * mask).sum(1) / mask.sum(1)


def _over_the_width(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    return ((logp - old_logp) * mask).mean(1).exp()


def _padded(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    return (logp - old_logp).mean(1).exp()


def _unsummed(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    return ((logp - old_logp) * mask / mask.sum(1, keepdim=True)).exp()


def _upside_down(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    return 1 / my_sequence_ratio(logp, old_logp, mask)


def _logarithm(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    return my_sequence_ratio(logp, old_logp, mask).log()


def _root_of_the_sum(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    return ((logp - old_logp).exp() * mask).sum(1) ** (1 / mask.sum(1))


def _of_the_batch(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    drift = ((logp - old_logp) * mask).sum() / mask.sum()
    return drift.exp().expand(len(logp))


def _first_of_each_row(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    rows = zip(logp - old_logp, mask, strict=True)
    return torch.stack([row[: int(kept.sum())].mean() for row, kept in rows]).exp()


def _case(numbers: dict[str, Tensor]) -> Case:
    return Case({name: numbers[name] for name in ("logp", "old_logp", "mask")})


def _holed(numbers: dict[str, Tensor], generator: Generator) -> Case:
    return _case({**numbers, "mask": with_holes(numbers["mask"], generator)})


def _draw(generator: Generator) -> Case:
    numbers = any_batch(generator)
    return _holed(numbers, generator) if integer(generator, 0, 2) else _case(numbers)


SEQUENCE_RATIO = Exercise(
    id="board-gspo-ratio",
    title="GSPO's ratio",
    concept="geometric-mean-ratio",
    minutes=5,
    difficulty="core",
    statement=r"""
    Write `my_sequence_ratio(logp, old_logp, mask)`, all `[B, T]`: for each completion, `[B]`,

    $$s_i = \Big(\frac{\pi(y_i)}{\pi_{\mathrm{old}}(y_i)}\Big)^{1/|y_i|}$$

    where only the tokens whose mask is 1 belong to $y_i$ and are counted in $|y_i|$. A 0 marks padding at the end of a
    row, or a tool's output inside it; under it stands some finite number without meaning. The checker compares the
    values and the gradient with respect to `logp`.
    """,
    solution=my_sequence_ratio,
    cases=(
        _case(books_batch()),
        _case(batch([1, 3], torch.Generator().manual_seed(0), width=4)),
        _case(batch([6, 2, 4], torch.Generator().manual_seed(1))),
        _holed(
            batch([6, 4], torch.Generator().manual_seed(2)),
            torch.Generator().manual_seed(3),
        ),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _product,
            "This is the ratio of the whole completions: on long ones it runs away from 1. What does the exponent do?",
        ),
        Mistake(
            _arithmetic,
            "You average the ratios of the tokens. The root of a product is another mean: take it where products are sums.",
        ),
        Mistake(
            _over_the_width,
            "You divide by the padded width: the same completion would get another ratio in a wider batch.",
        ),
        Mistake(_padded, "The mask is not used: padding moves the ratio."),
        Mistake(
            _unsummed,
            "You divide each token's log-ratio by the length and do not add them up: that is a ratio a token, all near 1.",
        ),
        Mistake(
            _upside_down,
            "The ratio is upside down: a completion that has become likelier should have one above 1.",
        ),
        Mistake(_logarithm, "This is the logarithm of the ratio."),
        Mistake(
            _root_of_the_sum,
            "You take the root of the sum of the ratios. The completion's probability is a product of those of its tokens.",
        ),
        Mistake(
            _of_the_batch,
            "Every completion gets the mean of the whole batch: sum and count within each row.",
        ),
        Mistake(
            given(my_sequence_ratio, logp=Tensor.detach),
            "The values are right, but no gradient reaches `logp`: this ratio is what is differentiated.",
        ),
        Mistake(
            _first_of_each_row,
            "You take as many tokens from the start of a row as its mask has ones. Where a tool speaks in between, these "
            "are not the policy's own.",
        ),
    ),
    where="Take the logarithm of both sides: what becomes of the product, and what of the exponent?",
    idea=r"""
    $\log s_i$ is the sum of the trained tokens' log-ratios over their number. One exponential at the end.
    """,
    outline="""
    ```python
    drift = (...).sum(1) / ...  # [B]
    return drift.exp()
    ```
    """,
    right="Right. If every token has gained 1 % of probability, which number does it give at any length?",
    gradient_of="logp",
)
