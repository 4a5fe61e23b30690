"""The weight between the engine that sampled and the model that trains."""

import torch
from torch import Generator, Tensor

from ..draws import any_batch, batch
from ..exercise import Case, Exercise, Mistake
from ..mistakes import negated


def my_corrected_loss(
    logp: Tensor, sampler_logp: Tensor, advantages: Tensor, mask: Tensor, cap: float
) -> Tensor:
    """[B, T] log-probs and mask, [B] advantages -> scalar, a mean over tokens."""
    trained = mask != 0
    gap = torch.where(trained, logp.detach() - sampler_logp, 0.0)
    weight = gap.exp().clamp(max=cap)
    objective = weight * advantages[:, None] * torch.where(trained, logp, 0.0)
    return -objective.sum() / trained.sum()


def _loss(weight: Tensor, logp: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    return -(weight * advantages[:, None] * logp * mask).sum() / mask.sum()


def _gap(logp: Tensor, sampler_logp: Tensor, mask: Tensor) -> Tensor:
    return ((logp - sampler_logp) * mask).detach()


def _uncorrected(
    logp: Tensor, sampler_logp: Tensor, advantages: Tensor, mask: Tensor, cap: float
) -> Tensor:
    return _loss(torch.ones_like(mask), logp, advantages, mask)


def _inverse(
    logp: Tensor, sampler_logp: Tensor, advantages: Tensor, mask: Tensor, cap: float
) -> Tensor:
    return _loss(
        (-_gap(logp, sampler_logp, mask)).exp().clamp(max=cap), logp, advantages, mask
    )


def _uncapped(
    logp: Tensor, sampler_logp: Tensor, advantages: Tensor, mask: Tensor, cap: float
) -> Tensor:
    return _loss(_gap(logp, sampler_logp, mask).exp(), logp, advantages, mask)


def _both_ends(
    logp: Tensor, sampler_logp: Tensor, advantages: Tensor, mask: Tensor, cap: float
) -> Tensor:
    return _loss(
        _gap(logp, sampler_logp, mask).exp().clamp(1 / cap, cap), logp, advantages, mask
    )


def _cap_of_the_log(
    logp: Tensor, sampler_logp: Tensor, advantages: Tensor, mask: Tensor, cap: float
) -> Tensor:
    return _loss(
        _gap(logp, sampler_logp, mask).clamp(max=cap).exp(), logp, advantages, mask
    )


def _through_the_weight(
    logp: Tensor, sampler_logp: Tensor, advantages: Tensor, mask: Tensor, cap: float
) -> Tensor:
    return _loss(
        ((logp - sampler_logp) * mask).exp().clamp(max=cap), logp, advantages, mask
    )


def _whole_rows(
    logp: Tensor, sampler_logp: Tensor, advantages: Tensor, mask: Tensor, cap: float
) -> Tensor:
    gap = _gap(logp, sampler_logp, mask).sum(-1, keepdim=True)
    return _loss(gap.exp().clamp(max=cap), logp, advantages, mask)


def _dropped(
    logp: Tensor, sampler_logp: Tensor, advantages: Tensor, mask: Tensor, cap: float
) -> Tensor:
    weight = _gap(logp, sampler_logp, mask).exp()
    return _loss(torch.where(weight > cap, 0.0, weight), logp, advantages, mask)


def _mean_of_means(
    logp: Tensor, sampler_logp: Tensor, advantages: Tensor, mask: Tensor, cap: float
) -> Tensor:
    weight = _gap(logp, sampler_logp, mask).exp().clamp(max=cap)
    return -((weight * advantages[:, None] * logp * mask).sum(-1) / mask.sum(-1)).mean()


def _case(drawn: dict[str, Tensor], cap: float) -> Case:
    names = {
        "logp": "logp",
        "old_logp": "sampler_logp",
        "advantages": "advantages",
        "mask": "mask",
    }
    return Case({new: drawn[old] for old, new in names.items()} | {"cap": cap})


def _draw(generator: Generator) -> Case:
    return _case(any_batch(generator), 1.2)


_G = torch.Generator().manual_seed(0)

TRUNCATED = Exercise(
    id="scale-truncated",
    title="whose sample was it?",
    concept="sampler-mismatch",
    minutes=10,
    difficulty="core",
    statement=r"""
    An engine drew the tokens and says `sampler_logp` of them; the model that is trained says `logp`. Write
    `my_corrected_loss(logp, sampler_logp, advantages, mask, cap)`: the policy-gradient loss $-A \log\pi$, each
    token weighted by how much likelier it is under the model than under the engine, at most `cap`, and averaged
    over all tokens whose mask is 1. The weight is a constant. Values under a zero mask may be anything. The
    gradient with respect to `logp` is compared, too.
    """,
    solution=my_corrected_loss,
    cases=(
        _case(batch([3, 1, 2], _G), 2.0),
        _case(batch([4, 4], _G, apart=1.5), 1.5),
        _case(batch([1, 6, 2, 3], _G, apart=0.8), 1.2),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _uncorrected,
            "Nothing is corrected: the tokens count as if the model had drawn them.",
        ),
        Mistake(
            _inverse,
            "The weight is upside down: what the engine draws too often has to count less.",
        ),
        Mistake(_uncapped, "The weight has no cap."),
        Mistake(
            _both_ends,
            "You cap the weight at both ends. Small weights do no harm: only the top is cut.",
        ),
        Mistake(
            _cap_of_the_log,
            "You cap the logarithm of the weight. The cap is for the weight.",
        ),
        Mistake(
            _through_the_weight,
            "A gradient flows through the weight. It is a constant.",
        ),
        Mistake(
            _whole_rows,
            "You weigh whole responses. The exercise asks for a weight a token.",
        ),
        Mistake(
            _dropped,
            "You drop the tokens above the cap. They keep the cap as their weight.",
        ),
        Mistake(
            _mean_of_means,
            "You average within each response first. The exercise asks for all tokens alike.",
        ),
        Mistake(
            negated(my_corrected_loss),
            "The sign is wrong: a loss goes down as the objective goes up.",
        ),
    ),
    where="Let engine and model agree: the plain policy gradient must be left.",
    idea=r"""
    The weight is $e^{\log\pi - \log\text{sampler}}$, a number without gradient, at most `cap`. What carries the
    gradient is $\log\pi$ itself. Under a zero mask nothing may enter, NaN neither: replace before you multiply.
    """,
    outline="""
    ```python
    trained = mask != 0
    gap = torch.where(trained, ..., 0.0)  # without gradient
    weight = ...
    objective = weight * advantages[:, None] * ...  # log-probs, 0 where not trained
    return -objective.sum() / ...
    ```
    """,
    right="Right. For one-token completions and without the cap the expected gradient is exactly the model's own.",
    gradient_of="logp",
)
