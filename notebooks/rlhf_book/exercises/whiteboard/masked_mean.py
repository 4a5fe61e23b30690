"""A mean over the tokens that are trained."""

import torch
from torch import Generator, Tensor

from ..draws import books_batch, integer, with_holes
from ..exercise import Case, Exercise, Mistake


def my_masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Numbers and mask, both [B, T] -> one number: the mean where the mask is 1."""
    return x.where(mask != 0, torch.zeros_like(x)).sum() / mask.sum()


def _times_mask(x: Tensor, mask: Tensor) -> Tensor:
    return (x * mask).sum() / mask.sum()


def _plain(x: Tensor, mask: Tensor) -> Tensor:
    return x.mean()


def _over_the_width(x: Tensor, mask: Tensor) -> Tensor:
    return (x * mask).mean()


def _mean_of_means(x: Tensor, mask: Tensor) -> Tensor:
    return ((x * mask).sum(1) / mask.sum(1)).mean()


def _sum(x: Tensor, mask: Tensor) -> Tensor:
    return (x * mask).sum()


def _per_row(x: Tensor, mask: Tensor) -> Tensor:
    return (x * mask).sum() / len(x)


def _each_row(x: Tensor, mask: Tensor) -> Tensor:
    return (x * mask).sum(1) / mask.sum(1)


def _padding_in_the_sum(x: Tensor, mask: Tensor) -> Tensor:
    return x.sum() / mask.sum()


def _without_zeros(x: Tensor, mask: Tensor) -> Tensor:
    kept = x * mask
    return kept.sum() / (kept != 0).sum()


def _first_of_each_row(x: Tensor, mask: Tensor) -> Tensor:
    rows = zip(x, mask, strict=True)
    return torch.cat([row[: int(kept.sum())] for row, kept in rows]).mean()


def _detached(x: Tensor, mask: Tensor) -> Tensor:
    return my_masked_mean(x, mask).detach()


def _case(
    lengths: list[int],
    width: int,
    generator: Generator,
    padding: float,
    holes: bool = False,
) -> Case:
    mask = (torch.arange(width) < torch.tensor(lengths)[:, None]).float()
    mask = with_holes(mask, generator) if holes else mask
    x = torch.randn(mask.shape, generator=generator) + 1
    # A trained token may well be 0, as the advantages of a constant group are.
    x = x.masked_fill(torch.rand(mask.shape, generator=generator) < 0.2, 0.0)
    noise = padding + 3 * torch.rand(mask.shape, generator=generator)
    return Case({"x": x.where(mask != 0, noise), "mask": mask})


def _draw(generator: Generator) -> Case:
    rows, width = integer(generator, 1, 6), integer(generator, 1, 7)
    lengths = torch.randint(1, width + 1, (rows,), generator=generator).tolist()
    padding = (0.0, 5.0, float("nan"), float("inf"))[integer(generator, 0, 4)]
    return _case(lengths, width, generator, padding, integer(generator, 0, 2) == 1)


MASKED_MEAN = Exercise(
    id="board-masked-mean",
    title="a masked mean",
    concept="token-level-loss",
    minutes=4,
    difficulty="warm-up",
    statement=r"""
    Write `my_masked_mean(x, mask)`: the mean of `x`, `[B, T]`, over the tokens of the batch whose mask is 1. All of them
    count alike, whichever completion they belong to. A 0 marks padding at the end of a row, or a tool's output inside it;
    under it anything may stand, infinite numbers and NaN as well, and nothing of it may reach the result. The checker
    compares the value and the gradient with respect to `x`.
    """,
    solution=my_masked_mean,
    cases=(
        Case({"x": books_batch()["logp"], "mask": books_batch()["mask"]}),
        _case([1, 4, 2], 5, torch.Generator().manual_seed(0), 5.0),
        _case([3, 3], 4, torch.Generator().manual_seed(1), 2.0),
        _case([2, 1], 3, torch.Generator().manual_seed(2), float("nan")),
        _case([5, 3], 6, torch.Generator().manual_seed(4), 5.0, holes=True),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _times_mask,
            "Right, as long as finite numbers stand under the padding. What is NaN times 0?",
        ),
        Mistake(_plain, "The mask is not used: padding is averaged with the tokens."),
        Mistake(
            _over_the_width,
            "The sum is right, but you divide by all places, padding included: a wider batch would give a smaller mean.",
        ),
        Mistake(
            _mean_of_means,
            "This is the mean within each row, then over rows. A token of a long completion counts less than one of a short "
            "completion.",
        ),
        Mistake(_sum, "This is the sum. By how many tokens should it be divided?"),
        Mistake(_per_row, "You divide by the number of rows: count tokens instead."),
        Mistake(
            _each_row,
            "One number a row: the mean is to be taken over the tokens of the whole batch.",
        ),
        Mistake(
            _padding_in_the_sum,
            "You divide by the right count, but what stands under the padding is still in the sum.",
        ),
        Mistake(
            _without_zeros,
            "You count the numbers that are not 0. A trained token may have a 0: which tensor knows who is trained?",
        ),
        Mistake(
            _first_of_each_row,
            "You take as many tokens from the start of a row as its mask has ones. Where a tool speaks in between, these "
            "are not the trained ones.",
        ),
        Mistake(
            _detached,
            "The value is right, but it is cut off from `x`: as the end of a loss it would train nothing.",
        ),
    ),
    where="What stands in the numerator, what in the denominator, and which of the two must never see the padding?",
    idea="""
    NaN times 0 is NaN, so a product with the mask is not enough. First replace what stands under a 0 by 0, then add
    up, and divide by the number of trained tokens.
    """,
    outline="""
    ```python
    kept = ...  # [B, T], chosen, not multiplied
    return kept.sum() / ...
    ```
    """,
    right="Right. GRPO does not average like this: what does a mean of means do to a long completion?",
    gradient_of="x",
)
