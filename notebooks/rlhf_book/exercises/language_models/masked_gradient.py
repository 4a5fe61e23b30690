"""The gradient of a fine-tuning loss in the logits, with a mean within each completion first."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake
from ..mistakes import negated


def my_masked_gradient(logits: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    """[B, T, V] logits, [B, T] observed tokens, [B, T] mask: the gradient [B, T, V]."""
    one_hot = torch.zeros_like(logits).scatter(-1, targets[..., None].long(), 1.0)
    weight = mask / mask.sum(-1, keepdim=True) / len(mask)  # [B, T]
    return (logits.softmax(-1) - one_hot) * weight[..., None]


def _parts(
    logits: Tensor, targets: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    one_hot = torch.zeros_like(logits).scatter(-1, targets[..., None].long(), 1.0)
    return logits.softmax(-1) - one_hot, one_hot, mask[..., None]


def _over_all_tokens(logits: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    error, _, m = _parts(logits, targets, mask)
    return error * m / mask.sum()


def _padding_in_the_divisor(logits: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    error, _, m = _parts(logits, targets, mask)
    return error * m / mask.numel()


def _no_mask(logits: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    error, _, _ = _parts(logits, targets, mask)
    return error / mask.sum(-1)[:, None, None] / len(mask)


def _observed_alone(logits: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    _, one_hot, _ = _parts(logits, targets, mask)
    return my_masked_gradient(logits, targets, mask) * one_hot


def _summed_over_completions(logits: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    return my_masked_gradient(logits, targets, mask) * len(mask)


def _case(seed: int, B: int, T: int, V: int) -> Case:
    generator = torch.Generator().manual_seed(seed)
    return _drawn(generator, B, T, V)


def _drawn(generator: Generator, B: int, T: int, V: int) -> Case:
    logits = torch.randn(B, T, V, generator=generator, dtype=torch.float64)
    targets = torch.randint(V, (B, T), generator=generator)
    lengths = torch.randint(1, T + 1, (B, 1), generator=generator)
    mask = (torch.arange(T) < lengths).double()
    return Case({"logits": logits, "targets": targets, "mask": mask})


def _draw(generator: Generator) -> Case:
    B, T, V = (integer(generator, low, high) for low, high in ((1, 4), (1, 5), (2, 6)))
    return _drawn(generator, B, T, V)


MASKED_GRADIENT = Exercise(
    id="lm-masked-gradient",
    title="a mean of means",
    concept="next-token-ce",
    minutes=8,
    difficulty="core",
    statement=r"""
    Somebody writes the fine-tuning loss as a mean *within* each completion first and then over the $B$ completions:
    $\frac1B \sum_i \frac1{|o_i|} \sum_t \ell_{i,t}$. Without autograd, write `my_masked_gradient`: its gradient in all
    logits. Tokens with mask 0 are padding. Then say which tokens are pushed harder than by this chapter's loss.
    """,
    solution=my_masked_gradient,
    cases=(_case(0, 2, 3, 3), _case(1, 3, 4, 5), _case(4, 1, 4, 2)),
    draw=_draw,
    mistakes=(
        Mistake(
            _over_all_tokens,
            "You divide by the tokens of the whole batch. Here each completion is averaged first.",
        ),
        Mistake(
            _padding_in_the_divisor,
            "Padding is in your divisor.",
        ),
        Mistake(_no_mask, "Some padding gets a gradient."),
        Mistake(
            _observed_alone,
            "Only the observed token's logit is pushed. What of the others?",
        ),
        Mistake(
            _summed_over_completions,
            "Too large by the number of completions.",
        ),
        Mistake(
            negated(my_masked_gradient),
            "This is the direction of a descent step. The gradient points the other way.",
        ),
    ),
    where="Softmax minus one-hot at each token; then ask by which number each token's loss is multiplied.",
    idea=r"""
    The answer is a product of two factors. One is the gradient of a single token's $-\log p$ in its own logits, a
    vector over the vocabulary. The other is the number in front of $\ell_{i,t}$ in the loss. Read it off for two
    completions of one and three tokens.
    """,
    outline="""
    ```python
    one_hot = ...  # [B, T, V], 1 at the observed token
    weight = mask / ... / ...  # [B, T], first within its row, then over the rows
    return (... - one_hot) * ...  # the weight needs one axis more
    ```
    """,
    right=(
        "Right. Tokens of short completions are pushed harder than by a mean over all tokens, by the mean length over their own."
    ),
)
