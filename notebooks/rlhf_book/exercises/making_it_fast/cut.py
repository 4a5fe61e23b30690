"""Where to cut rows in order of length into two pieces, if at all."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake


def my_least_cost(lengths: Tensor, overhead: int) -> int:
    """Lengths [B], the cost of being a piece -> the least cost of one piece or two."""
    sizes = sorted(lengths.tolist())
    best = len(sizes) * sizes[-1] + overhead
    for k in range(1, len(sizes)):
        best = min(best, k * sizes[k - 1] + (len(sizes) - k) * sizes[-1] + 2 * overhead)
    return best


def _two_pieces(sizes: list[int], overhead: int) -> list[int]:
    n = len(sizes)
    return [
        k * max(sizes[:k]) + (n - k) * max(sizes[k:]) + overhead for k in range(1, n)
    ]


def _one(sizes: list[int], overhead: int) -> int:
    return len(sizes) * max(sizes) + overhead


def _never(lengths: Tensor, overhead: int) -> int:
    return _one(lengths.tolist(), overhead)


def _always(lengths: Tensor, overhead: int) -> int:
    return min(_two_pieces(sorted(lengths.tolist()), 2 * overhead))


def _as_they_come(lengths: Tensor, overhead: int) -> int:
    sizes = lengths.tolist()
    return min(_one(sizes, overhead), *_two_pieces(sizes, 2 * overhead))


def _one_overhead(lengths: Tensor, overhead: int) -> int:
    sizes = sorted(lengths.tolist())
    return min(_one(sizes, overhead), *_two_pieces(sizes, overhead))


def _no_overhead(lengths: Tensor, overhead: int) -> int:
    return _one_overhead(lengths, 0)


def _in_the_middle(lengths: Tensor, overhead: int) -> int:
    sizes = sorted(lengths.tolist())
    return min(
        _one(sizes, overhead), _two_pieces(sizes, 2 * overhead)[len(sizes) // 2 - 1]
    )


def _no_padding(lengths: Tensor, overhead: int) -> int:
    return int(lengths.sum()) + overhead


def _where_it_is_cut(lengths: Tensor, overhead: int) -> int:
    sizes = sorted(lengths.tolist())
    costs = [_one(sizes, overhead), *_two_pieces(sizes, 2 * overhead)]
    return costs.index(min(costs))


def _padding(lengths: Tensor, overhead: int) -> int:
    return my_least_cost(lengths, overhead) - int(lengths.sum())


def _draw(generator: Generator) -> Case:
    lengths = torch.randint(1, 60, (integer(generator, 2, 13),), generator=generator)
    return Case({"lengths": lengths, "overhead": integer(generator, 1, 60)})


CUT = Exercise(
    id="fast-cut",
    title="one piece or two?",
    concept="length-pieces",
    minutes=15,
    difficulty="core",
    statement=r"""
    A piece of $n$ rows costs $n$ times its longest row, and an overhead for being a piece at all. Write
    `my_least_cost(lengths, overhead)`: `lengths` is `[B]`, integers in any order, at least two of them; the result is
    the least cost of reading all rows, in one piece or in two, whichever is cheaper. Then ask from which overhead on
    a batch of 63 rows of 10 tokens and one of 40 is better left in one piece.
    """,
    solution=my_least_cost,
    cases=(
        Case({"lengths": torch.tensor([3, 12, 7, 40]), "overhead": 8}),
        Case({"lengths": torch.tensor([40, 5, 5, 6, 5]), "overhead": 20}),
        Case({"lengths": torch.tensor([9, 10]), "overhead": 30}),
        Case({"lengths": torch.tensor([30, 1, 29, 2, 3, 30]), "overhead": 5}),
        Case({"lengths": torch.tensor([20, 20, 20, 19, 1]), "overhead": 5}),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _never,
            "You never cut. A second piece costs an overhead and may save more padding than that.",
        ),
        Mistake(
            _always, "You always cut. Where lengths are alike, one piece is cheaper."
        ),
        Mistake(
            _as_they_come,
            "The rows are cut in the order in which they came. What if they are sorted first?",
        ),
        Mistake(_one_overhead, "Two pieces have two overheads."),
        Mistake(
            _no_overhead,
            "The overhead does not enter: without it every cut that saves a token would be free.",
        ),
        Mistake(
            _in_the_middle,
            "The cut is always in the middle. The cheapest place depends on the lengths.",
        ),
        Mistake(
            _no_padding,
            "You count no padding: within a piece, every row is as wide as the longest one.",
        ),
        Mistake(
            _where_it_is_cut, "This is where to cut. The exercise asks for the cost."
        ),
        Mistake(
            _padding, "You subtracted the tokens themselves. The cost includes them."
        ),
    ),
    where="With two rows there are two ways: work out both by hand.",
    idea="""
    Sort the rows by length. In one piece they cost their number times the longest, and one overhead. For each cut
    after the $k$-th row the first piece costs $k$ times *its* longest row. Take the smallest of all.
    """,
    outline="""
    ```python
    sizes = sorted(lengths.tolist())
    best = ...  # one piece
    for k in range(1, len(sizes)):
        best = min(best, ...)  # two pieces, two overheads
    ```
    """,
    right="Right. More than two pieces is the same idea for each end of a piece: that is the dynamic programme.",
)
