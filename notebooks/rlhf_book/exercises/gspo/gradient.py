"""GSPO's gradient, written down instead of asked of autograd."""

import torch
from torch import Generator, Tensor

from ..draws import any_batch, batch, books_batch, uniform
from ..exercise import Case, Exercise, Mistake
from ..mistakes import negated


def my_gspo_gradient(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    """[B, T], advantages [B] -> [B, T]: dL / d logp, for GSPO's loss L."""
    length = mask.sum(1)  # [B]
    s = torch.exp((torch.where(mask > 0, logp - old_logp, 0.0)).sum(1) / length)
    gained = (advantages > 0) & (s > 1 + high)
    lost = (advantages < 0) & (s < 1 - low)
    one_token = torch.where(
        gained | lost, 0.0, -s * advantages / length / len(s)
    )  # [B]
    return one_token[:, None] * mask


def _log_ratio(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask > 0, logp - old_logp, 0.0)


def _s(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    return torch.exp(_log_ratio(logp, old_logp, mask).sum(1) / mask.sum(1))


def _free(logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    s = _s(logp, old_logp, mask)
    return (-s * advantages / mask.sum(1) / len(s))[:, None] * mask


def _no_clip(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    return _free(logp, old_logp, advantages, mask)


def _both_sides(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    s = _s(logp, old_logp, mask)
    inside = (s >= 1 - low) & (s <= 1 + high)
    return _free(logp, old_logp, advantages, mask) * inside[:, None]


def _wrong_side(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    s = _s(logp, old_logp, mask)
    dropped = ((advantages < 0) & (s > 1 + high)) | ((advantages > 0) & (s < 1 - low))
    return _free(logp, old_logp, advantages, mask) * ~dropped[:, None]


def _own_ratio(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    right = my_gspo_gradient(logp, old_logp, advantages, mask, low, high)
    return (
        right
        / _s(logp, old_logp, mask)[:, None]
        * _log_ratio(logp, old_logp, mask).exp()
    )


def _no_ratio(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    return (
        my_gspo_gradient(logp, old_logp, advantages, mask, low, high)
        / _s(logp, old_logp, mask)[:, None]
    )


def _no_length(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    return my_gspo_gradient(logp, old_logp, advantages, mask, low, high) * mask.sum(
        1, keepdim=True
    )


def _no_batch(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    return my_gspo_gradient(logp, old_logp, advantages, mask, low, high) * len(logp)


def _product(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    right = my_gspo_gradient(logp, old_logp, advantages, mask, low, high)
    return (
        right
        / _s(logp, old_logp, mask)[:, None]
        * _log_ratio(logp, old_logp, mask).sum(1).exp()[:, None]
    )


def _into_padding(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    right = my_gspo_gradient(logp, old_logp, advantages, mask, low, high)
    return right[:, :1].expand_as(mask).clone()


def _case(drawn: dict[str, Tensor], low: float, high: float) -> Case:
    given = {name: drawn[name] for name in ("logp", "old_logp", "advantages", "mask")}
    return Case({**given, "low": low, "high": high})


def _draw(generator: Generator) -> Case:
    low, high = (0.02 + 0.4 * uniform(generator, 2)).tolist()
    return _case(any_batch(generator), low, high)


GRADIENT = Exercise(
    id="gspo-gradient",
    title="the gradient, without autograd",
    concept="gspo-gradient",
    minutes=15,
    difficulty="core",
    statement=r"""
    Write `my_gspo_gradient(logp, old_logp, advantages, mask, low, high)`: the derivative of GSPO's *loss*
    $L = -\frac1B \sum_i \min(s_i A_i, \mathrm{clip}(s_i)\, A_i)$ by each `logp[i, t]`, as a `[B, T]` tensor, 0 under a
    0 of the mask. Derive it with pencil and paper: first inside the clip range, then for the two cases in which the minimum
    is flat. Autograd is what the checker uses, so do without it.
    """,
    solution=my_gspo_gradient,
    cases=(
        _case(books_batch(), 3e-4, 4e-4),
        Case(
            {
                "logp": torch.tensor(
                    [[0.3, -0.1], [-0.3, 0.1], [0.3, -0.1], [-0.3, 0.1], [0.01, 0.01]]
                )
                - 1,
                "old_logp": -torch.ones(5, 2),
                "advantages": torch.tensor([1.0, 2.0, -1.5, -1.0, 0.5]),
                "mask": torch.ones(5, 2),
                "low": 0.03,
                "high": 0.04,
            }
        ),
        _case(batch([2, 5, 1, 3, 5], Generator().manual_seed(2)), 0.03, 0.04),
        _case(batch([3, 1, 4], Generator().manual_seed(3)), 0.05, 0.3),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _into_padding,
            "There is a gradient in the padding: it has to be 0 under a 0 of the mask.",
        ),
        Mistake(
            _no_clip,
            "Two cases are missing: where the minimum picks the clipped product, its slope is zero.",
        ),
        Mistake(
            _both_sides,
            "You drop every completion outside the clip range. One that has moved the wrong way keeps its gradient: which "
            "product is smaller for A > 0 and a ratio below the range?",
        ),
        Mistake(
            _wrong_side,
            "You drop the completions that moved the wrong way and keep those that have moved enough. Compare the two "
            "products for A > 0 and a ratio above the range.",
        ),
        Mistake(
            _own_ratio,
            "Each of your tokens carries its own ratio, as in GRPO. Here the ratio of the completion multiplies all of "
            "them alike.",
        ),
        Mistake(
            _no_ratio,
            "The ratio itself is missing: the derivative of an exponential contains the exponential.",
        ),
        Mistake(
            _no_length,
            "The inner derivative is missing: the exponent is an average over |y| tokens.",
        ),
        Mistake(_no_batch, "The average over completions is missing: 1/B."),
        Mistake(
            negated(my_gspo_gradient),
            "The sign: you differentiate the objective. The loss is its negative.",
        ),
        Mistake(
            _product,
            "Your weight is the product of the token ratios, without the root of order |y|.",
        ),
    ),
    where="Differentiate s by one log-prob first: it is an exponential of an average.",
    idea=r"""
    $\partial s / \partial \log\pi_t = s/|y|$ for every trained token. Where the minimum takes the free product, the
    loss has $-\frac1B A\, s/|y|$ at each token. Where it is flat (good and above, bad and below) it has 0.
    """,
    outline="""
    ```python
    length = ...
    s = ...  # [B]
    gained, lost = ..., ...  # the two flat cases
    one_token = torch.where(gained | lost, 0.0, ...)  # [B]
    return ... * mask  # the same number at each token
    ```
    """,
    right="Right. Compare two tokens of one completion: they differ in nothing.",
)
