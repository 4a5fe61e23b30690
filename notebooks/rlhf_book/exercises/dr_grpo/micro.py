"""Putting micro-batches together again."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake


def my_factors(lengths: Tensor, micro_batches: int) -> Tensor:
    """[B] -> [micro_batches]: the factor of each micro-batch's own token mean."""
    tokens = torch.stack(
        [part.sum() for part in torch.tensor_split(lengths, micro_batches)]
    )
    return tokens / tokens.sum()


def _mean(lengths: Tensor, micro_batches: int) -> Tensor:
    return torch.full((micro_batches,), 1 / micro_batches, dtype=lengths.dtype)


def _rows(lengths: Tensor, micro_batches: int) -> Tensor:
    rows = [
        len(part) / len(lengths) for part in torch.tensor_split(lengths, micro_batches)
    ]
    return torch.tensor(rows, dtype=lengths.dtype)


def _sum(lengths: Tensor, micro_batches: int) -> Tensor:
    return torch.ones(micro_batches, dtype=lengths.dtype)


def _upside_down(lengths: Tensor, micro_batches: int) -> Tensor:
    return 1 / my_factors(lengths, micro_batches)


def _again(lengths: Tensor, micro_batches: int) -> Tensor:
    return my_factors(lengths, micro_batches) / micro_batches


def _no_denominator(lengths: Tensor, micro_batches: int) -> Tensor:
    return my_factors(lengths, micro_batches) * lengths.sum()


def _relative(lengths: Tensor, micro_batches: int) -> Tensor:
    return my_factors(lengths, micro_batches) * micro_batches


def _mean_lengths(lengths: Tensor, micro_batches: int) -> Tensor:
    means = torch.stack(
        [part.mean() for part in torch.tensor_split(lengths, micro_batches)]
    )
    return means / means.sum()


def _draw(generator: Generator) -> Case:
    B = integer(generator, 2, 12)
    lengths = torch.randint(1, 200, (B,), generator=generator).double()
    return Case({"lengths": lengths, "micro_batches": integer(generator, 2, B + 1)})


MICRO = Exercise(
    id="dr-grpo-micro",
    title="putting micro-batches together",
    concept="grad-accumulation-normaliser",
    minutes=10,
    difficulty="core",
    statement=r"""
    A batch does not fit into memory. It is cut into micro-batches, and somebody has computed the token mean of each
    one, over *its own* tokens. Write `my_factors(lengths, micro_batches)`: the `[micro_batches]` numbers by which these
    means have to be multiplied so that their *sum* is the token mean of the whole batch. `lengths` is `[B]`; rows are
    dealt out in order, as evenly as they go, by `torch.tensor_split(lengths, micro_batches)`.
    """,
    solution=my_factors,
    cases=(
        Case({"lengths": torch.tensor([2.0, 2.0, 200.0, 200.0]), "micro_batches": 2}),
        Case({"lengths": torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]), "micro_batches": 2}),
        Case({"lengths": torch.tensor([3.0, 3.0, 3.0]), "micro_batches": 3}),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _mean,
            "This averages the averages. A token of a micro-batch with few tokens then counts more.",
        ),
        Mistake(
            _rows,
            "You count rows. That is right for a mean over completions, and this is one over tokens.",
        ),
        Mistake(
            _sum,
            "You add the means up as they are: the step grows with the number of micro-batches.",
        ),
        Mistake(
            _upside_down,
            "Upside down: a micro-batch with more of the tokens has to count more.",
        ),
        Mistake(
            _again,
            "Your factors add up to less than 1: something is divided by the number of parts once more.",
        ),
        Mistake(
            _no_denominator,
            "These are the sums over tokens. The tokens of the whole batch belong below them.",
        ),
        Mistake(
            _relative,
            "Your factors are right for a mean over micro-batches. The exercise asks for their sum.",
        ),
        Mistake(
            _mean_lengths,
            "You compare mean lengths. Micro-batches may have different numbers of rows.",
        ),
    ),
    where="For two micro-batches write down both means, and the mean over all tokens, with the sums spelt out.",
    idea="""
    The mean of the whole batch is (all sums together) / (all tokens together). One micro-batch's sum is its mean
    times its own number of tokens.
    """,
    outline="""
    ```python
    tokens = torch.stack([... for part in torch.tensor_split(...)])  # one number a micro-batch
    return tokens / ...
    ```
    """,
    right="Right. For which aggregation would all factors be equal, whatever the lengths?",
)
