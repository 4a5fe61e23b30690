"""GSPO-token: the value of the sequence's ratio, the gradient of the token's own log-prob."""

import torch
from torch import Generator, Tensor

from ..draws import any_batch, batch, books_batch, mean_of_means, uniform
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given, negated


def my_gspo_token_loss(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    """All [B, T] -> scalar to minimise: GSPO with an advantage for each token."""
    drift = ((logp - old_logp) * mask).sum(1) / mask.sum(1)  # [B]
    s = torch.exp(drift).detach()[:, None]
    ratio = s * torch.exp(
        logp - logp.detach()
    )  # [B, T], value s, gradient of the token's own log-prob
    kept = torch.minimum(
        ratio * advantages, ratio.clamp(1 - low, 1 + high) * advantages
    )
    return -((kept * mask).sum(1) / mask.sum(1)).mean()


def _s(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    return torch.exp(torch.where(mask > 0, logp - old_logp, 0.0).sum(1) / mask.sum(1))[
        :, None
    ]


def _clipped(ratio: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
    return torch.minimum(
        ratio * advantages, ratio.clamp(1 - low, 1 + high) * advantages
    )


def _no_stop(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    ratio = _s(logp, old_logp, mask).expand_as(logp)
    return -mean_of_means(_clipped(ratio, advantages, low, high), mask)


def _both(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    ratio = _s(logp, old_logp, mask) * torch.exp(logp - logp.detach())
    return -mean_of_means(_clipped(ratio, advantages, low, high), mask)


def _grpo(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    return -mean_of_means(
        _clipped(torch.exp(logp - old_logp), advantages, low, high), mask
    )


def _log_prob(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    ratio = _s(logp, old_logp, mask).detach() * logp
    return -mean_of_means(ratio * advantages, mask)


def _token_mean(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    ratio = _s(logp, old_logp, mask).detach() * torch.exp(logp - logp.detach())
    return -(_clipped(ratio, advantages, low, high) * mask).sum() / mask.sum()


def _averaged(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    mean = (torch.where(mask > 0, advantages, 0.0).sum(1) / mask.sum(1))[:, None]
    return my_gspo_token_loss(
        logp, old_logp, mean.expand_as(advantages), mask, low, high
    )


def _no_clip(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    ratio = _s(logp, old_logp, mask).detach() * torch.exp(logp - logp.detach())
    return -mean_of_means(ratio * advantages, mask)


def _case(
    drawn: dict[str, Tensor], advantages: Tensor, low: float, high: float
) -> Case:
    given = {name: drawn[name] for name in ("logp", "old_logp")}
    return Case(
        {
            **given,
            "advantages": advantages,
            "mask": drawn["mask"],
            "low": low,
            "high": high,
        }
    )


def _own(drawn: dict[str, Tensor], generator: Generator) -> Tensor:
    return torch.randn(drawn["mask"].shape, generator=generator)


def _draw(generator: Generator) -> Case:
    low, high = (0.02 + 0.4 * uniform(generator, 2)).tolist()
    drawn = any_batch(generator)
    return _case(drawn, _own(drawn, generator), low, high)


_BOOK = books_batch()
_FIVE = batch([2, 5, 1, 3, 5], Generator().manual_seed(2))
_THREE = batch([3, 1, 4], Generator().manual_seed(3))

TOKEN = Exercise(
    id="gspo-token",
    title="an advantage for each token",
    concept="gspo-token",
    minutes=15,
    difficulty="core",
    statement=r"""
    A process reward gives every token its own advantage, `[B, T]`. Write `my_gspo_token_loss(logp, old_logp,
    advantages, mask, low, high)`: the mean over completions of the mean over a completion's tokens of
    $\min(s_{i,t} A_{i,t}, \mathrm{clip}(s_{i,t})\, A_{i,t})$, as a loss, where $s_{i,t}$ has the *value* of the
    sequence's ratio $s_i$ and the *gradient* of its own token alone,
    $\nabla s_{i,t} = s_i \nabla \log \pi(y_{i,t})$. `x.detach()` is x with its gradient cut off. The checker compares
    the value and the gradient with respect to `logp`.
    """,
    solution=my_gspo_token_loss,
    cases=(
        _case(
            _BOOK,
            _BOOK["advantages"][:, None].expand_as(_BOOK["logp"]).contiguous(),
            0.03,
            0.04,
        ),
        _case(_FIVE, _own(_FIVE, Generator().manual_seed(8)), 0.03, 0.04),
        _case(_THREE, _own(_THREE, Generator().manual_seed(9)), 0.05, 0.3),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            given(my_gspo_token_loss, mask=torch.ones_like),
            "The mask is not used: what stands in the padding enters the ratio and the means.",
        ),
        Mistake(
            _no_stop,
            "The value is right. But a token's gradient flows through the ratio of the whole completion, so every token "
            "learns from the average of all advantages.",
        ),
        Mistake(
            _both,
            "The gradient comes in twice: through the completion's ratio, and through the token's own factor. One of the "
            "two has to be a constant.",
        ),
        Mistake(
            given(my_gspo_token_loss, logp=Tensor.detach),
            "The value is right, but no gradient reaches `logp`: everything was detached, nothing is learned.",
        ),
        Mistake(
            _grpo,
            "This is GRPO: the value of each ratio is the token's own, where it should be the completion's.",
        ),
        Mistake(
            _log_prob,
            "The gradient resembles the right one inside the clip range, the value does not: a factor with the gradient of "
            "a log-prob and the value 1 is wanted, and then the clip.",
        ),
        Mistake(
            _token_mean,
            "You average over all tokens at once, so that a long completion counts more than a short one.",
        ),
        Mistake(
            _averaged,
            "You average the advantages of a completion first. Then there was no need for token advantages.",
        ),
        Mistake(
            _no_clip,
            "Nothing is clipped: outside the clip range your gradient goes on.",
        ),
        Mistake(
            negated(my_gspo_token_loss),
            "The sign: this is the objective, which is maximised. A loss is minimised.",
        ),
    ),
    where="Let all advantages of a completion be equal: value and gradient have to be those of the plain GSPO loss.",
    idea=r"""
    You need a factor with the value 1 and the gradient $\nabla\log\pi(y_{i,t})$: the exponential of a log-prob
    minus itself, one of them without gradient. Multiply it by $s_i$ without gradient. What follows is GRPO's loss
    with this ratio.
    """,
    outline="""
    ```python
    s = ...  # [B, 1], the sequence's ratio as a number
    ratio = s * ...  # [B, T], value s, gradient of the own token
    kept = torch.minimum(..., ...)
    return -(... / mask.sum(1)).mean()
    ```
    """,
    right="Right. Give two tokens of one completion opposite advantages: can one be clipped and the other not?",
    gradient_of="logp",
)
