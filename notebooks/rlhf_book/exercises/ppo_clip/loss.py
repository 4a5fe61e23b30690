"""PPO's clipped loss as the paper prints it: one mean over time steps, one advantage a token."""

import torch
from torch import Generator, Tensor

from ..draws import (
    any_batch,
    batch,
    books_batch,
    holed,
    mean_of_means,
    to_the_front,
)
from ..exercise import Case, Exercise, Mistake
from ..mistakes import negated, swapped


def my_ppo_loss(
    logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor, eps: float
) -> Tensor:
    """Four times [B, T] -> scalar to minimise: eq. 7, a mean over trained tokens."""
    ratio = torch.exp(logp - old_logp)
    surrogate = torch.minimum(
        ratio * advantages, ratio.clamp(1 - eps, 1 + eps) * advantages
    )  # [B, T]
    return -(surrogate * mask).sum() / mask.sum()


def _cells(logp: Tensor, old_logp: Tensor, advantages: Tensor, eps: float) -> Tensor:
    ratio = torch.exp(logp - old_logp)
    return torch.minimum(ratio * advantages, ratio.clamp(1 - eps, 1 + eps) * advantages)


def _token_mean(x: Tensor, mask: Tensor) -> Tensor:
    return (x * mask).sum() / mask.sum()


def _responses(
    logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor, eps: float
) -> Tensor:
    return -mean_of_means(_cells(logp, old_logp, advantages, eps), mask)


def _padded(
    logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor, eps: float
) -> Tensor:
    return -(_cells(logp, old_logp, advantages, eps) * mask).mean()


def _no_mask(
    logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor, eps: float
) -> Tensor:
    return -_cells(logp, old_logp, advantages, eps).mean()


def _summed(
    logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor, eps: float
) -> Tensor:
    return -(_cells(logp, old_logp, advantages, eps) * mask).sum(1).mean()


def _maximum_for_bad(
    logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor, eps: float
) -> Tensor:
    ratio = torch.exp(logp - old_logp)
    free, clipped = ratio * advantages, ratio.clamp(1 - eps, 1 + eps) * advantages
    picked = torch.where(
        advantages >= 0, torch.minimum(free, clipped), torch.maximum(free, clipped)
    )
    return -_token_mean(picked, mask)


def _maximum(
    logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor, eps: float
) -> Tensor:
    ratio = torch.exp(logp - old_logp)
    return -_token_mean(
        torch.maximum(ratio * advantages, ratio.clamp(1 - eps, 1 + eps) * advantages),
        mask,
    )


def _clip_alone(
    logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor, eps: float
) -> Tensor:
    return -_token_mean(
        torch.exp(logp - old_logp).clamp(1 - eps, 1 + eps) * advantages, mask
    )


def _no_clip(
    logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor, eps: float
) -> Tensor:
    return -_token_mean(torch.exp(logp - old_logp) * advantages, mask)


def _recomputed(
    logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor, eps: float
) -> Tensor:
    return my_ppo_loss(logp, logp.detach(), advantages, mask, eps)


def _of_the_response(
    logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor, eps: float
) -> Tensor:
    first = advantages[:, :1].expand_as(advantages)
    return my_ppo_loss(logp, old_logp, first, mask, eps)


def _sequence_ratio(
    logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor, eps: float
) -> Tensor:
    ratio = torch.exp(((logp - old_logp) * mask).sum(1, keepdim=True))
    return -_token_mean(
        torch.minimum(ratio * advantages, ratio.clamp(1 - eps, 1 + eps) * advantages),
        mask,
    )


def _case(drawn: dict[str, Tensor], generator: Generator, eps: float = 0.2) -> Case:
    given = {name: drawn[name] for name in ("logp", "old_logp", "mask")}
    noise = torch.randn(
        drawn["mask"].shape, generator=generator, dtype=drawn["logp"].dtype
    )
    advantages = drawn["advantages"][:, None] + noise
    order = {
        "logp": given["logp"],
        "old_logp": given["old_logp"],
        "advantages": advantages,
        "mask": given["mask"],
    }
    return Case({**order, "eps": eps})


def _front(
    logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor, eps: float
) -> Tensor:
    return my_ppo_loss(logp, old_logp, advantages, to_the_front(mask), eps)


def _draw(generator: Generator) -> Case:
    drawn = any_batch(generator, holes=True)
    return _case(
        drawn, generator, 0.1 + 0.3 * float(torch.rand((), generator=generator))
    )


LOSS = Exercise(
    id="ppo-clip-loss",
    title="PPO's loss as the paper prints it",
    concept="clipped-surrogate",
    minutes=15,
    difficulty="core",
    statement=r"""
    Equation 7 of arXiv 1707.06347 is an average over time steps,

    $$L^{\text{CLIP}} = \hat{\mathbb E}_t \Big[ \min\big(r_t \hat A_t,\ \mathrm{clip}(r_t, 1-\varepsilon,
    1+\varepsilon)\, \hat A_t\big) \Big] .$$

    Write `my_ppo_loss(logp, old_logp, advantages, mask, eps)` for a batch of completions: a *loss*, in which all trained
    tokens of the batch count alike, whatever completion they belong to. All tensors are `[B, T]`; each token has an
    advantage of its own, a constant. The mask is 1 on trained tokens, and may be 0 between them; under a 0
    stands some finite number without meaning. The checker compares the value and the gradient with respect to `logp`.
    """,
    solution=my_ppo_loss,
    cases=(
        _case(books_batch(), Generator().manual_seed(1)),
        Case(
            {
                "logp": torch.tensor([[1.5, 0.5], [1.5, 0.5]]).log() - 1,
                "old_logp": -torch.ones(2, 2),
                "advantages": torch.tensor([[1.0, 2.0], [-1.5, -1.0]]),
                "mask": torch.tensor([[1.0, 1.0], [1.0, 1.0]]),
                "eps": 0.2,
            }
        ),
        _case(
            batch([2, 5, 1, 3], Generator().manual_seed(2)), Generator().manual_seed(3)
        ),
        _case(
            batch([3, 1, 4], Generator().manual_seed(4)),
            Generator().manual_seed(5),
            eps=0.1,
        ),
        _case(
            holed(batch([5, 4, 6], Generator().manual_seed(7))),
            Generator().manual_seed(8),
        ),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _responses,
            "You average within each completion first: a token of a long completion counts less. In equation 7 there are "
            "only time steps, and they all count alike.",
        ),
        Mistake(
            _no_mask, "The mask is not used: rubbish in the padding enters the sum."
        ),
        Mistake(
            _front,
            "You read as many tokens from the front of a row as it has trained ones. The mask may have zeros in between, "
            "where a tool's output stands: multiply by it.",
        ),
        Mistake(_padded, "You divide by all of B x T. Padding is no time step."),
        Mistake(
            _summed,
            "Within a completion you sum, and then average over completions. Equation 7 averages over tokens.",
        ),
        Mistake(
            negated(my_ppo_loss),
            "The sign: this is the objective, which is maximised. A loss is minimised.",
        ),
        Mistake(
            _maximum_for_bad,
            "For a negative advantage you switch to max. Which token is pushed then, one that has lost enough or one "
            "that has gained?",
        ),
        Mistake(_maximum, "max where there should be min."),
        Mistake(
            _clip_alone,
            "You clip and never compare with the unclipped product: no token can come back.",
        ),
        Mistake(
            _no_clip,
            "Nothing is clipped: far outside the clip range your gradient goes on.",
        ),
        Mistake(
            _recomputed,
            "Your ratio is always 1: the old log-probs are an argument, stored when the completions were sampled.",
        ),
        Mistake(
            swapped(my_ppo_loss, "logp", "old_logp"),
            "The ratio is upside down: new over old.",
        ),
        Mistake(
            _of_the_response,
            "You use the first token's advantage for the whole completion. Each has its own.",
        ),
        Mistake(
            _sequence_ratio,
            "You multiply the ratios of a completion into one. Each token has its own ratio.",
        ),
    ),
    where="Try one completion of one token, where the loss is a single number that you can work out by hand.",
    idea="""
    For one token write: ratio, free product, clipped product, the smaller of them. Then the average: all trained
    tokens of the batch count alike, so there is one sum and one count, both over the whole batch.
    """,
    outline="""
    ```python
    ratio = ...
    surrogate = torch.minimum(..., ...)  # [B, T]
    return -(...).sum() / ...  # rubbish under the mask counts in neither
    ```
    """,
    right="Right, value and gradient. What does a token weigh in a batch with one completion of 2 tokens and one of 200?",
    gradient_of="logp",
)
