"""How far GRPO's mean of ratios and GSPO's ratio are apart, to second order."""

import torch
from torch import Generator, Tensor

from ..draws import any_batch, batch, books_batch
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given, negated


def my_gap(log_ratio: Tensor, mask: Tensor) -> Tensor:
    """[B, T] -> [B]: arithmetic minus geometric mean of ratios, to second order."""
    count = mask.sum(1)  # [B]
    mean = (log_ratio * mask).sum(1) / count
    squares = ((log_ratio - mean[:, None]) ** 2 * mask).sum(1) / count
    return squares / 2


def _mean(x: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask > 0, x, 0.0).sum(1) / mask.sum(1)


def _exact(log_ratio: Tensor, mask: Tensor) -> Tensor:
    return _mean(log_ratio.exp(), mask) - _mean(log_ratio, mask).exp()


def _no_half(log_ratio: Tensor, mask: Tensor) -> Tensor:
    return 2 * my_gap(log_ratio, mask)


def _sample(log_ratio: Tensor, mask: Tensor) -> Tensor:
    count = mask.sum(1)
    return my_gap(log_ratio, mask) * count / (count - 1)


def _uncentred(log_ratio: Tensor, mask: Tensor) -> Tensor:
    return _mean(log_ratio**2, mask) / 2


def _deviation(log_ratio: Tensor, mask: Tensor) -> Tensor:
    return (2 * my_gap(log_ratio, mask)).sqrt() / 2


def _padded(log_ratio: Tensor, mask: Tensor) -> Tensor:
    return my_gap(torch.where(mask > 0, log_ratio, 0.0), torch.ones_like(mask))


def _summed(log_ratio: Tensor, mask: Tensor) -> Tensor:
    return my_gap(log_ratio, mask) * mask.sum(1)


def _case(drawn: dict[str, Tensor]) -> Case:
    return Case({"log_ratio": drawn["logp"] - drawn["old_logp"], "mask": drawn["mask"]})


def _draw(generator: Generator) -> Case:
    return _case(any_batch(generator))


GAP = Exercise(
    id="gspo-gap",
    title="arithmetic against geometric mean",
    concept="token-surrogate-first-order",
    minutes=15,
    difficulty="stretch",
    statement=r"""
    Without a clip GRPO's objective weighs a completion by the *arithmetic* mean of its token ratios, GSPO's by the
    *geometric* mean.
    With $\delta_t = \log w_t$ the difference is

    $$\frac1n \sum_t e^{\delta_t} - \exp\Big(\frac1n \sum_t \delta_t\Big).$$

    Expand both to second order in the $\delta_t$ and write `my_gap(log_ratio, mask)`, the term that is left; it is a
    plain statistic of the $\delta_t$ of a completion. `log_ratio` and `mask` are `[B, T]`, with some finite number
    without meaning under a 0 of the mask. The result is `[B]`. A completion of one token has a gap of 0.
    """,
    solution=my_gap,
    cases=(
        _case(books_batch()),
        Case(
            {
                "log_ratio": torch.tensor([[0.2, -0.2], [0.3, 9.0]]),
                "mask": torch.tensor([[1.0, 1.0], [1.0, 0.0]]),
            }
        ),
        _case(batch([3, 5, 1, 4], Generator().manual_seed(2))),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _exact,
            "That is the difference itself, with all its orders. Expand both means to second order: what is left is a "
            "plain statistic of the log-ratios.",
        ),
        Mistake(
            _no_half,
            "Twice too large: where did the 1/2 of the exponential's second-order term go?",
        ),
        Mistake(
            _sample,
            "You divide by n - 1, which breaks down for a completion of one token. Nothing is being estimated here: "
            "both means of the formula divide by n.",
        ),
        Mistake(
            _uncentred,
            "This is the second-order term of the arithmetic mean alone. The geometric mean has one of its own.",
        ),
        Mistake(
            _deviation,
            "This grows in proportion to the log-ratios. A second-order term grows with their square.",
        ),
        Mistake(
            given(my_gap, mask=torch.ones_like),
            "The mask is not used: what stands under the padding is no token.",
        ),
        Mistake(
            _padded,
            "The padding counts as tokens that did not move. A completion has its own length.",
        ),
        Mistake(
            _summed, "You sum over the tokens of a completion. Both means divide by n."
        ),
        Mistake(
            negated(my_gap),
            "The sign: an arithmetic mean is never below the geometric one.",
        ),
    ),
    where="Take a completion of two tokens with log-ratios d and -d, and expand both means by hand.",
    idea=r"""
    To second order $e^{\delta} \approx 1 + \delta + \delta^2/2$. The arithmetic mean gives $1 + \bar\delta +
    \overline{\delta^2}/2$, the geometric one $1 + \bar\delta + \bar\delta^2/2$. Their difference is half of a
    statistic that you know by name.
    """,
    outline="""
    ```python
    count = ...  # [B]
    mean = ...  # [B], of the trained tokens
    squares = ...  # [B], the mean squared distance from it, by count and not count - 1
    return squares / 2
    ```
    """,
    right="Right. If all tokens of a completion drift alike the gap is 0: then GRPO and GSPO weigh it the same.",
)
