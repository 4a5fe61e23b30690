"""One process's part of a loss that several of them share."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake
from ..mistakes import negated


def my_part(objective: Tensor, mask: Tensor, rank: int, count: int) -> Tensor:
    """Objective and mask [B, T] of all rows -> scalar: the part of process `rank`."""
    own = torch.arange(len(mask)).tensor_split(count)[rank]
    return -(objective[own] * mask[own]).sum() / mask.sum()


def _own_rows(mask: Tensor, rank: int, count: int) -> Tensor:
    return torch.arange(len(mask)).tensor_split(count)[rank]


def _own_mean(objective: Tensor, mask: Tensor, rank: int, count: int) -> Tensor:
    own = _own_rows(mask, rank, count)
    return -(objective[own] * mask[own]).sum() / mask[own].sum()


def _mean_of_means(objective: Tensor, mask: Tensor, rank: int, count: int) -> Tensor:
    return _own_mean(objective, mask, rank, count) / count


def _divided_twice(objective: Tensor, mask: Tensor, rank: int, count: int) -> Tensor:
    return my_part(objective, mask, rank, count) / count


def _for_a_mean(objective: Tensor, mask: Tensor, rank: int, count: int) -> Tensor:
    return my_part(objective, mask, rank, count) * count


def _everything(objective: Tensor, mask: Tensor, rank: int, count: int) -> Tensor:
    return -(objective * mask).sum() / mask.sum()


def _dealt_out(objective: Tensor, mask: Tensor, rank: int, count: int) -> Tensor:
    return -(objective[rank::count] * mask[rank::count]).sum() / mask.sum()


def _padding_counts(objective: Tensor, mask: Tensor, rank: int, count: int) -> Tensor:
    own = _own_rows(mask, rank, count)
    return -(objective[own] * mask[own]).sum() / mask.numel()


def _case(generator: Generator, lengths: list[int], rank: int, count: int) -> Case:
    width = max(lengths)
    mask = (torch.arange(width) < torch.tensor(lengths)[:, None]).float()
    return Case(
        {
            "objective": torch.randn(mask.shape, generator=generator),
            "mask": mask,
            "rank": rank,
            "count": count,
        }
    )


def _draw(generator: Generator) -> Case:
    count = integer(generator, 2, 5)
    rows = integer(generator, count, 3 * count + 1)
    lengths = torch.randint(1, 9, (rows,), generator=generator).tolist()
    return _case(generator, lengths, integer(generator, 0, count), count)


_G = torch.Generator().manual_seed(0)

PROCESSES = Exercise(
    id="scale-processes",
    title="a process's part of the mean",
    concept="data-parallel",
    minutes=5,
    difficulty="core",
    statement=r"""
    The loss is minus the mean of `objective` over all trained tokens of $B$ rows. `count` processes share it: process
    `rank` reads the rows `torch.arange(B).tensor_split(count)[rank]` and no others, and afterwards gradients are
    *added up* over the processes. Write `my_part(objective, mask, rank, count)`: what process `rank` has to
    compute, so that the sum is the gradient of the loss. (It is given the whole batch; masks are small and
    everybody may have them.) The gradient with respect to `objective` is compared, too.
    """,
    solution=my_part,
    cases=(
        _case(_G, [1, 2, 8, 9], 0, 2),
        _case(_G, [5, 1, 1, 3, 2], 1, 2),
        _case(_G, [2, 2, 7, 1, 4, 6, 3], 2, 3),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _own_mean,
            "You divide by the process's own tokens: a token's weight then depends on its neighbours.",
        ),
        Mistake(
            _mean_of_means,
            "This is the mean of the processes' means: where rows are short, tokens weigh more.",
        ),
        Mistake(
            _divided_twice,
            "You divide by the number of processes as well. The gradients are added up.",
        ),
        Mistake(
            _for_a_mean,
            "This is right where gradients are averaged. Here they are added up.",
        ),
        Mistake(
            _everything, "This is the whole loss. The process reads its own rows only."
        ),
        Mistake(
            _dealt_out,
            "You deal the rows out one by one. Each process reads neighbouring rows.",
        ),
        Mistake(_padding_counts, "Your denominator counts the padding."),
        Mistake(
            negated(my_part),
            "The sign is wrong: a loss goes down as the objective goes up.",
        ),
    ),
    where="Add up the parts of all ranks, and compare with the loss of one process.",
    idea="""
    The whole loss is a sum over rows divided by all trained tokens. A part is the sum over its own rows with the
    *same* divisor: then the parts add up.
    """,
    outline="""
    ```python
    own = ...  # the rows of this rank
    return -(...).sum() / ...  # counted over whose mask?
    ```
    """,
    right="Right. One number, the tokens of everybody, has to be known before anyone goes backward.",
    gradient_of="objective",
)
