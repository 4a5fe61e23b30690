"""The clipped loss, averaged within each completion."""

import torch
from torch import Generator, Tensor

from ..draws import (
    any_batch,
    batch,
    books_batch,
    holed,
    mean_of_means,
    to_the_front,
    uniform,
)
from ..exercise import Case, Exercise, Mistake


def my_clipped_loss(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float = 0.2,
    high: float = 0.2,
) -> Tensor:
    """logp, old_logp, mask [B, T], advantages [B] -> GRPO's clipped loss, a scalar."""
    ratio = torch.exp(logp - old_logp)  # [B, T]
    free = ratio * advantages[:, None]
    clipped = ratio.clamp(1 - low, 1 + high) * advantages[:, None]
    objective = torch.minimum(free, clipped)
    per_completion = (objective * mask).sum(1) / mask.sum(1)  # [B]
    return -per_completion.mean()


def _objective(
    logp: Tensor, old_logp: Tensor, advantages: Tensor, low: float, high: float
) -> Tensor:
    ratio = torch.exp(logp - old_logp)
    return torch.minimum(
        ratio * advantages[:, None],
        ratio.clamp(1 - low, 1 + high) * advantages[:, None],
    )


def _maximum(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    ratio = torch.exp(logp - old_logp)
    a = advantages[:, None]
    return -mean_of_means(
        torch.maximum(ratio * a, ratio.clamp(1 - low, 1 + high) * a), mask
    )


def _by_sign(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    ratio = torch.exp(logp - old_logp)
    a = advantages[:, None]
    free, clipped = ratio * a, ratio.clamp(1 - low, 1 + high) * a
    return -mean_of_means(
        torch.where(a >= 0, torch.minimum(free, clipped), torch.maximum(free, clipped)),
        mask,
    )


def _clip_alone(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    return -mean_of_means(
        torch.exp(logp - old_logp).clamp(1 - low, 1 + high) * advantages[:, None], mask
    )


def _no_clip(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    return -mean_of_means(torch.exp(logp - old_logp) * advantages[:, None], mask)


def _no_mask(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    return -_objective(logp, old_logp, advantages, low, high).mean()


def _padded_width(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    return -(_objective(logp, old_logp, advantages, low, high) * mask).mean()


def _token_mean(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    return (
        -(_objective(logp, old_logp, advantages, low, high) * mask).sum() / mask.sum()
    )


def _row_sum(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    return -(_objective(logp, old_logp, advantages, low, high) * mask).sum(1).mean()


def _sum_of_means(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    return len(logp) * my_clipped_loss(logp, old_logp, advantages, mask, low, high)


def _maximised(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    return -my_clipped_loss(logp, old_logp, advantages, mask, low, high)


def _detached_ratio(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    return my_clipped_loss(logp.detach(), old_logp, advantages, mask, low, high)


def _ratio_inverted(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    return my_clipped_loss(old_logp, logp, advantages, mask, low, high)


def _log_ratio(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    ratio, a = logp - old_logp, advantages[:, None]
    return -mean_of_means(
        torch.minimum(ratio * a, ratio.clamp(1 - low, 1 + high) * a), mask
    )


def _quotient_of_logs(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    ratio, a = logp / old_logp, advantages[:, None]
    return -mean_of_means(
        torch.minimum(ratio * a, ratio.clamp(1 - low, 1 + high) * a), mask
    )


def _product_clamped(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    free = torch.exp(logp - old_logp) * advantages[:, None]
    return -mean_of_means(torch.minimum(free, free.clamp(1 - low, 1 + high)), mask)


def _product_clamped_alone(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    free = torch.exp(logp - old_logp) * advantages[:, None]
    return -mean_of_means(free.clamp(1 - low, 1 + high), mask)


def _bounds_swapped(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    return my_clipped_loss(logp, old_logp, advantages, mask, high, low)


def _one_bound(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    return my_clipped_loss(logp, old_logp, advantages, mask, low, low)


def _along_tokens(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    ratio = torch.exp(logp - old_logp)
    return -mean_of_means(
        torch.minimum(ratio * advantages, ratio.clamp(1 - low, 1 + high) * advantages),
        mask,
    )


def _front(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> Tensor:
    return my_clipped_loss(logp, old_logp, advantages, to_the_front(mask), low, high)


def _draw_loss(generator: Generator) -> Case:
    low, high = (0.1 + 0.4 * uniform(generator, 2)).tolist()
    return _loss_case(any_batch(generator, holes=True), low, high)


def _loss_case(batch: dict[str, Tensor], low: float = 0.2, high: float = 0.2) -> Case:
    given = {name: batch[name] for name in ("logp", "old_logp", "advantages", "mask")}
    return Case({**given, "low": low, "high": high})


CLIPPED_LOSS = Exercise(
    id="grpo-clipped-loss",
    title="the clipped loss",
    concept="grpo-objective",
    minutes=20,
    difficulty="core",
    statement=r"""
    Write `my_clipped_loss(logp, old_logp, advantages, mask, low, high)`, GRPO's objective without its KL term, as a
    *loss*. `logp`, `old_logp` and `mask` are `[B, T]`; the mask is 1 on trained tokens, and may be 0 between
    them; under a 0 stands some finite number without meaning. `advantages` is `[B]`, one number a completion, a constant.

    $$L = -\frac1B \sum_i \frac1{|o_i|} \sum_t \min\big(w_{i,t} A_i,\; \mathrm{clip}(w_{i,t}, 1-\mathrm{low},
    1+\mathrm{high})\, A_i\big), \qquad w_{i,t} = \frac{\pi(o_{i,t})}{\pi_{\mathrm{old}}(o_{i,t})}$$

    The checker compares the value and the gradient with respect to `logp`.
    """,
    solution=my_clipped_loss,
    cases=(
        _loss_case(books_batch()),
        # One token above the band, one below, both signs of the advantage.
        Case(
            {
                "logp": torch.tensor([[1.5], [0.5], [1.5], [0.5], [1.0]]).log() - 1,
                "old_logp": -torch.ones(5, 1),
                "advantages": torch.tensor([1.0, 2.0, -1.5, -1.0, 0.5]),
                "mask": torch.ones(5, 1),
                "low": 0.2,
                "high": 0.2,
            }
        ),
        _loss_case(batch([2, 5, 1, 3, 5], Generator().manual_seed(2))),
        _loss_case(batch([3, 1, 4], Generator().manual_seed(3)), low=0.1, high=0.5),
        _loss_case(holed(batch([5, 4, 6], Generator().manual_seed(4)))),
    ),
    draw=_draw_loss,
    mistakes=(
        Mistake(
            _no_mask,
            "The mask is not used: rubbish in the padding enters the sum, and rows are divided by the padded width.",
        ),
        Mistake(
            _front,
            "You read as many tokens from the front of a row as it has trained ones. The mask may have zeros in between, "
            "where a tool's output stands: multiply by it.",
        ),
        Mistake(
            _padded_width,
            "You divide by the padded width T. Each completion has its own length |o|: the sum of its row of the mask.",
        ),
        Mistake(
            _token_mean,
            "This is one mean over all tokens of the batch, as in DAPO. GRPO first averages within each completion, then "
            "over completions: a long completion counts no more than a short one.",
        ),
        Mistake(
            _row_sum,
            "Within a completion you sum over tokens: the factor 1/|o| is missing.",
        ),
        Mistake(
            _sum_of_means,
            "You sum over the completions. The outer average, 1/B, is missing.",
        ),
        Mistake(
            _maximised,
            "The sign: this is the objective, which is maximised. A loss is minimised.",
        ),
        Mistake(
            _detached_ratio,
            "The value is right, but no gradient reaches `logp`: the ratio was detached, and nothing would be learned.",
        ),
        Mistake(
            _ratio_inverted,
            "The ratio is upside down: new over old, so that above 1 means that the token has become likelier.",
        ),
        Mistake(
            _log_ratio,
            "You clip the logarithm of the ratio. The band 1-low to 1+high is for the ratio itself.",
        ),
        Mistake(
            _quotient_of_logs,
            "You divide one log-prob by the other. w is a quotient of probabilities: log-probs subtract, and the "
            "difference is exponentiated.",
        ),
        Mistake(
            _product_clamped,
            "You clamp the product of ratio and advantage. The band 1-low to 1+high lies around a ratio of 1: take "
            "A = -1, and see where your clamped product ends up.",
        ),
        Mistake(
            _product_clamped_alone,
            "You clamp the product of ratio and advantage, and compare it with nothing. The band is for the ratio "
            "alone, and the formula takes the smaller of two products.",
        ),
        Mistake(
            _maximum,
            "max where there should be min. Take A = 1 and w = 1.5: there the gradient should vanish, and "
            "yours does not.",
        ),
        Mistake(
            _by_sign,
            "For a negative advantage you switch to max. Take A = -1: at w = 0.5 the completion has been pushed far "
            "enough and the gradient should vanish; at w = 1.5 it should not. One of min and max fits both signs.",
        ),
        Mistake(
            _clip_alone,
            "You clip, but never compare with the unclipped product. Where the policy has moved the wrong way (A > 0 "
            "and w below the band) yours has no gradient to come back.",
        ),
        Mistake(
            _no_clip, "Nothing is clipped: far outside the band your gradient goes on."
        ),
        Mistake(
            _bounds_swapped,
            "`low` and `high` are swapped: the band runs from 1 - low to 1 + high.",
        ),
        Mistake(
            _one_bound,
            "Both sides of your band use `low`: the band runs from 1 - low to 1 + high.",
        ),
        Mistake(
            _along_tokens,
            "`[B, T] * [B]` lines the advantages up with the tokens, silently where B = T and with an error elsewhere. "
            "Give them a second axis.",
        ),
    ),
    where="Try a batch of one completion with one token, where the loss is a single number you can work out by hand.",
    idea="""
    Four steps, each with a shape: the ratio `[B, T]`; the smaller of the free and the clipped product `[B, T]`,
    where the advantage needs a second axis; the mean within each completion `[B]`; the mean over completions. And a
    loss is minimised.
    """,
    outline="""
    ```python
    ratio = ...  # [B, T]
    free, clipped = ..., ...  # both times the advantage
    objective = torch.minimum(free, clipped)
    per_completion = (objective * ...).sum(1) / ...  # [B], each by its own length
    return -...
    ```
    """,
    right="Right, value and gradient. At what ratio does a completion of negative advantage stop being pushed?",
    gradient_of="logp",
)
