"""How the means of micro-batches make the mean of the batch."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake


def my_micro_weights(mask: Tensor) -> Tensor:
    """[M, B, T] masks of M micro-batches: the weight of each one's token mean, [M]."""
    tokens = mask.sum((1, 2))  # [M]
    return tokens / tokens.sum()


def _equal(mask: Tensor) -> Tensor:
    return torch.full_like(mask[:, 0, 0], 1 / len(mask))


def _counts(mask: Tensor) -> Tensor:
    return mask.sum((1, 2))


def _sequences(mask: Tensor) -> Tensor:
    used = mask.amax(-1).sum(-1)
    return used / used.sum()


def _inverse(mask: Tensor) -> Tensor:
    inverse = 1 / mask.sum((1, 2))
    return inverse / inverse.sum()


def _to_one_after_m(mask: Tensor) -> Tensor:
    return my_micro_weights(mask) / len(mask)


def _mean_length(mask: Tensor) -> Tensor:
    lengths = mask.sum((1, 2)) / mask.amax(-1).sum(-1).clamp(min=1)
    return lengths / lengths.sum()


def _of(lengths: list[list[int]], T: int) -> Case:
    mask = (torch.arange(T) < torch.tensor(lengths)[..., None]).double()
    return Case({"mask": mask})


def _draw(generator: Generator) -> Case:
    M, B, T = (integer(generator, 1, 4) for _ in range(3))
    lengths = torch.randint(0, T + 1, (M, B), generator=generator)
    lengths[:, 0] = lengths[:, 0].clamp(min=1)
    return _of(lengths.tolist(), T)


MICRO_WEIGHTS = Exercise(
    id="lm-micro-weights",
    title="four micro-batches, one step",
    concept="sft",
    minutes=5,
    difficulty="warm-up",
    statement=r"""
    A batch does not fit into memory and is computed in $M$ micro-batches; each returns the mean loss of its own learnt
    tokens. Write `my_micro_weights`: the numbers by which these means have to be multiplied so that their sum is the
    mean over the learnt tokens of the *whole* batch. A micro-batch may contain rows without a learnt token.
    """,
    solution=my_micro_weights,
    cases=(
        _of([[3, 3], [5, 5]], 5),
        _of([[1, 0], [4, 2], [2, 2]], 4),
        _of([[2, 0]], 2),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _equal,
            "Micro-batches with few tokens count too much: this is the mean of the means.",
        ),
        Mistake(_counts, "These are the right proportions. What should they sum to?"),
        Mistake(_sequences, "You count rows. The loss is a mean over tokens."),
        Mistake(_inverse, "The larger a micro-batch, the more it should count."),
        Mistake(
            _to_one_after_m, "You divide by the number of micro-batches once more."
        ),
        Mistake(
            _mean_length,
            "You weigh by the mean length. How many completions are there of it?",
        ),
    ),
    where="Write the mean of the whole batch as a sum over micro-batches of (tokens there) x (mean there).",
    idea="""
    The mean over the whole batch is (sum of all losses) / (number of all learnt tokens). The sum of the losses of
    one micro-batch is its mean times its own count. Put the second into the first, and see what stands in front of
    each mean.
    """,
    outline="""
    ```python
    tokens = ...  # [M], the learnt tokens of each micro-batch: which two axes go away?
    return tokens / ...
    ```
    """,
    right="Right. A library therefore counts the learnt tokens of the whole batch before the first backward pass.",
)
