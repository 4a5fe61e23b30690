"""Whether an update pushed where the advantages point."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given, swapped


def my_push(before: Tensor, after: Tensor, advantages: Tensor, mask: Tensor) -> float:
    """[B, T] log-probs before and after an update -> what was gained per token."""
    gained = advantages[:, None] * (after - before)
    return gained[mask != 0].mean().item()


def _padded(before: Tensor, after: Tensor, advantages: Tensor, mask: Tensor) -> float:
    return (advantages[:, None] * (after - before) * mask).mean().item()


def _unmasked(before: Tensor, after: Tensor, advantages: Tensor, mask: Tensor) -> float:
    return (advantages[:, None] * (after - before)).mean().item()


def _by_row(before: Tensor, after: Tensor, advantages: Tensor, mask: Tensor) -> float:
    own = ((after - before) * mask).sum(1) / mask.sum(1)
    return (advantages * own).mean().item()


def _batch(generator: Generator, rows: int, width: int) -> Case:
    def logp() -> Tensor:
        return -torch.rand(rows, width, generator=generator, dtype=torch.float64) * 3

    lengths = torch.randint(1, width + 1, (rows, 1), generator=generator)
    lengths[0] = width
    mask = (torch.arange(width) < lengths).double()
    advantages = torch.randn(rows, generator=generator, dtype=torch.float64)
    return Case(
        {
            "before": logp(),
            "after": logp(),
            "advantages": advantages,
            "mask": mask,
        }
    )


def _draw(generator: Generator) -> Case:
    return _batch(generator, integer(generator, 2, 5), integer(generator, 2, 6))


PUSH = Exercise(
    id="diag-push",
    title="the update's direction",
    concept="diagnosis",
    minutes=10,
    difficulty="core",
    statement=r"""
    No metric of the forward pass sees an inverted ratio: with one update a rollout it is 1 either way. So read the same batch again after
    the update. Your loss is a token mean, so this check is one, too: write `my_push(before, after, advantages, mask)`, the mean, over trained tokens, of the advantage times the
    change of the token's log-prob. `before`, `after` and `mask` are [B, T], `advantages` [B], one a completion. Values under a zero mask mean
    nothing.

    Predict first: what is its sign after a small correct step? After a step with the inverted ratio? With a learning rate that is a
    hundred times too large?
    """,
    solution=my_push,
    cases=tuple(
        _batch(Generator().manual_seed(seed), rows, width)
        for seed, rows, width in ((0, 2, 3), (1, 3, 5), (2, 4, 2))
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            swapped(my_push, "before", "after"),
            "The change is what came after minus what was before.",
        ),
        Mistake(_padded, "You divide by all places of the batch, padding included."),
        Mistake(_unmasked, "You read values under the mask, which mean nothing."),
        Mistake(
            _by_row,
            "You average within completions first: for a sequence mean. This loss is a token mean.",
        ),
        Mistake(
            given(
                my_push,
                before=lambda before: before.exp(),
                after=lambda after: after.exp(),
            ),
            "The gradient is of log-probs: take their change, not that of probabilities.",
        ),
        Mistake(
            given(my_push, advantages=lambda advantages: advantages.sign()),
            "An advantage has a size, and you use its sign alone.",
        ),
        Mistake(
            given(my_push, advantages=torch.ones_like),
            "Where is the advantage? Bad completions should become less likely.",
        ),
    ),
    where="First order: a small step raises whatever has minus the gradient of the loss. Which sum of log-probs has it, at ratio 1?",
    idea="""
    At ratio 1 the gradient of the token mean is minus the advantage at each trained token. So what a small step
    raises is the mean of advantage × change of the log-prob, over trained tokens. Rubbish under the mask, NaN too,
    must not come in.
    """,
    outline="""
    ```python
    gained = ...  # [B, T]
    return gained[...].mean().item()
    ```
    """,
    right="Right. With the weights of the loss: above 0 after a small correct step, below 0 after an inverted one; a large one may end anywhere.",
)
