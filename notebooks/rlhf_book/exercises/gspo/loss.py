"""GSPO's loss: one ratio per completion, clipped as a whole."""

import torch
from torch import Generator, Tensor

from ..draws import any_batch, batch, books_batch, mean_of_means, uniform
from ..exercise import Case, Exercise, Mistake


def my_gspo_loss(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float = 3e-4,
    high: float = 4e-4,
) -> Tensor:
    """[B, T], advantages [B] -> scalar to minimise: clipped sequence ratios."""
    drift = ((logp - old_logp) * mask).sum(1) / mask.sum(1)  # [B], nats a token
    s = torch.exp(drift)
    kept = torch.minimum(s * advantages, s.clamp(1 - low, 1 + high) * advantages)  # [B]
    return -kept.mean()


def _clipped(ratio: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
    return torch.minimum(
        ratio * advantages, ratio.clamp(1 - low, 1 + high) * advantages
    )


def _mean(x: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask > 0, x, 0.0).sum(1) / mask.sum(1)


def _ratio(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    return torch.exp(_mean(logp - old_logp, mask))


def _product(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    ratio = torch.exp(torch.where(mask > 0, logp - old_logp, 0.0).sum(1))
    return -_clipped(ratio, advantages, low, high).mean()


def _no_sum(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    ratio = torch.exp((logp - old_logp) / mask.sum(1, keepdim=True))  # [B, T]
    return -mean_of_means(_clipped(ratio, advantages[:, None], low, high), mask)


def _arithmetic(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    ratio = _mean(torch.exp(logp - old_logp), mask)
    return -_clipped(ratio, advantages, low, high).mean()


def _tokens(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    return -mean_of_means(
        _clipped(torch.exp(logp - old_logp), advantages[:, None], low, high), mask
    )


def _padded(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    ratio = torch.exp(((logp - old_logp) * mask).mean(1))
    return -_clipped(ratio, advantages, low, high).mean()


def _no_mask(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    return -_clipped(torch.exp((logp - old_logp).mean(1)), advantages, low, high).mean()


def _by_length(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    kept = _clipped(_ratio(logp, old_logp, mask), advantages, low, high)
    return -(kept * mask.sum(1)).sum() / mask.sum()


def _summed(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    return -_clipped(_ratio(logp, old_logp, mask), advantages, low, high).sum()


def _maximised(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    return -my_gspo_loss(logp, old_logp, advantages, mask, low, high)


def _detached(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    return my_gspo_loss(logp.detach(), old_logp, advantages, mask, low, high)


def _inverted(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    return my_gspo_loss(old_logp, logp, advantages, mask, low, high)


def _no_clip(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    return -(_ratio(logp, old_logp, mask) * advantages).mean()


def _clip_alone(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    return -(_ratio(logp, old_logp, mask).clamp(1 - low, 1 + high) * advantages).mean()


def _swapped(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    return my_gspo_loss(logp, old_logp, advantages, mask, high, low)


def _case(drawn: dict[str, Tensor], low: float = 3e-4, high: float = 4e-4) -> Case:
    given = {name: drawn[name] for name in ("logp", "old_logp", "advantages", "mask")}
    return Case({**given, "low": low, "high": high})


def _draw(generator: Generator) -> Case:
    low, high = (0.02 + 0.4 * uniform(generator, 2)).tolist()
    return _case(any_batch(generator), low, high)


LOSS = Exercise(
    id="gspo-loss",
    title="GSPO's loss",
    concept="gspo-objective",
    minutes=20,
    difficulty="core",
    statement=r"""
    Write `my_gspo_loss(logp, old_logp, advantages, mask, low, high)`, GSPO's objective as a *loss*. `logp`,
    `old_logp` and `mask` are `[B, T]`; the mask is 1 on trained tokens; under a 0 stands some finite number without
    meaning.
    `advantages` is `[B]`, one number per completion.

    $$L = -\frac1B \sum_i \min\big(s_i A_i,\; \mathrm{clip}(s_i, 1-\mathrm{low}, 1+\mathrm{high})\, A_i\big),
    \qquad s_i = \Big(\frac{\pi(y_i)}{\pi_{\mathrm{old}}(y_i)}\Big)^{1/|y_i|}$$

    Derive the form of $s_i$ that uses log-probs of tokens first. The checker compares the value and the gradient with
    respect to `logp`.
    """,
    solution=my_gspo_loss,
    cases=(
        _case(books_batch()),
        # Three tokens of drift .1, above the range and below, with both signs; and one completion that has not moved.
        Case(
            {
                "logp": torch.tensor(
                    [[0.1] * 3, [-0.1] * 3, [0.1] * 3, [-0.1] * 3, [0.0] * 3]
                )
                - 1,
                "old_logp": -torch.ones(5, 3),
                "advantages": torch.tensor([1.0, 2.0, -1.5, -1.0, 0.5]),
                "mask": torch.ones(5, 3),
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
            _no_mask,
            "The mask is not used: what stands in the padding enters the ratio.",
        ),
        Mistake(
            _padded,
            "You divide by the padded width T. The exponent is 1/|y|: each completion has its own length.",
        ),
        Mistake(
            _product,
            "The root is missing: this is the ratio of the whole completion, the product over its tokens. At a thousand "
            "tokens no clip range could hold it.",
        ),
        Mistake(
            _no_sum,
            "You divide each token's log-ratio by the length and never add them up: there are T ratios per completion, "
            "and the longer it is the nearer they come to 1 by themselves.",
        ),
        Mistake(
            _arithmetic,
            "This is the arithmetic mean of the token ratios. The root of a product is a geometric mean: average the "
            "logarithms.",
        ),
        Mistake(
            _tokens,
            "This is GRPO: each token has its own ratio and is clipped by itself.",
        ),
        Mistake(
            _by_length,
            "You average over tokens, so that a long completion counts more. Here each completion counts once.",
        ),
        Mistake(_summed, "You sum over the completions. The average, 1/B, is missing."),
        Mistake(
            _maximised,
            "The sign: this is the objective, which is maximised. A loss is minimised.",
        ),
        Mistake(
            _detached,
            "The value is right, but no gradient reaches `logp`: the ratio was detached, and nothing would be learned.",
        ),
        Mistake(
            _inverted,
            "The ratio is upside down: new over old, so that above 1 means more probable.",
        ),
        Mistake(
            _no_clip,
            "Nothing is clipped: outside the clip range your gradient goes on.",
        ),
        Mistake(
            _clip_alone,
            "You clip, but never compare with the unclipped product. A completion that has moved the wrong way has no "
            "gradient to come back.",
        ),
        Mistake(
            _swapped,
            "`low` and `high` are swapped: the clip range runs from 1 - low to 1 + high.",
        ),
    ),
    where="Try a batch of one completion with two tokens, where the ratio is a square root you can work out by hand.",
    idea=r"""
    $\log s_i$ is the mean of the token log-ratios of the completion: the root of $|y_i|$ becomes a division. From
    there on there is one number for each completion, `[B]`, and the clip is the usual one.
    """,
    outline="""
    ```python
    drift = ...  # [B], nats a token
    s = torch.exp(drift)
    kept = torch.minimum(..., ...)  # [B]
    return -kept.mean()
    ```
    """,
    right="Right, value and gradient. How many tokens of a completion keep their gradient when its ratio is clipped?",
    gradient_of="logp",
)
