"""A win rate from verdicts in both orders."""

import torch
from torch import Generator, Tensor

from ..draws import integer, uniform
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given


def my_both_orders(first: Tensor, second: Tensor) -> Tensor:
    """[N] 1 where A won, shown first or shown second -> [2]: win rate, agreement."""
    rate = (first + second).mean() / 2
    return torch.stack([rate, (first == second).double().mean()])


def _one_order(first: Tensor, second: Tensor) -> Tensor:
    return torch.stack([first.mean(), (first == second).double().mean()])


def _consistent(first: Tensor, second: Tensor) -> Tensor:
    agree = first == second
    rate = first[agree].mean() if agree.any() else torch.tensor(0.5).double()
    return torch.stack([rate, agree.double().mean()])


def _disagree(first: Tensor, second: Tensor) -> Tensor:
    rate, agree = my_both_orders(first, second)
    return torch.stack([rate, 1 - agree])


def _reversed(first: Tensor, second: Tensor) -> Tensor:
    return my_both_orders(first, second).flip(0)


def _lost(first: Tensor, second: Tensor) -> Tensor:
    return torch.stack([(first * second).mean(), (first == second).double().mean()])


def _won(first: Tensor, second: Tensor) -> Tensor:
    return torch.stack(
        [torch.maximum(first, second).mean(), (first == second).double().mean()]
    )


def _draw(generator: Generator) -> Case:
    n = integer(generator, 3, 30)
    a, b = uniform(generator, 2)
    return Case(
        {
            "first": (uniform(generator, n) < a).double(),
            "second": (uniform(generator, n) < b).double(),
        }
    )


BOTH_ORDERS = Exercise(
    id="judges-both-orders",
    title="a win rate from both orders",
    concept="judge-bias",
    minutes=8,
    difficulty="warm-up",
    statement=r"""
    A judge compares policy A with policy B on $N$ prompts, in both orders. `first` `[N]` is 1 where A won when it was shown first, `second` `[N]` is
    1 where A won when it was shown second, else 0. Write `my_both_orders(first, second)`: a tensor of A's win rate, in which a verdict that
    changes with the order counts one half, and of the share of prompts on which both orders have the same winner.

    Then think: A wins 0.7 of the first and 0.3 of the second, and both orders agree on 0.6 of the prompts. What do you know about
    the others?
    """,
    solution=my_both_orders,
    cases=(
        Case(
            {
                "first": torch.tensor([1.0, 1.0, 1.0, 0.0, 1.0]).double(),
                "second": torch.tensor([1.0, 0.0, 0.0, 0.0, 1.0]).double(),
            }
        ),
        Case(
            {
                "first": torch.tensor([1.0, 1.0, 0.0]).double(),
                "second": torch.tensor([0.0, 1.0, 1.0]).double(),
            },
            kind="a judge who also prefers the second place once",
        ),
        Case(
            {
                "first": torch.tensor([1.0, 1.0, 1.0, 1.0]).double(),
                "second": torch.tensor([0.0, 0.0, 0.0, 0.0]).double(),
            },
            kind="a judge who looks at places alone",
        ),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            given(my_both_orders, second=lambda second: 1 - second),
            "`second` says who won, not which place won: it is 1 where A won, shown second.",
        ),
        Mistake(_one_order, "That is the win rate in one order alone."),
        Mistake(
            _consistent,
            "You leave out the prompts on which the orders disagree. Here they count one half.",
        ),
        Mistake(_disagree, "That is the share on which the orders disagree."),
        Mistake(_reversed, "The two numbers are in the other order."),
        Mistake(
            _lost,
            "A verdict that changes with the order counts as lost. Asked is half.",
        ),
        Mistake(
            _won, "A verdict that changes with the order counts as won. Asked is half."
        ),
    ),
    where="For one prompt there are four cases. Write down what A gets in each.",
    idea="""
    A pair of verdicts is worth 1, one half or 0. That is a mean of two numbers. They agree where the two numbers are equal.
    """,
    outline="""
    ```python
    rate = ...  # every prompt counts, with 1, one half or 0
    agreement = ...
    return torch.stack([rate, agreement])
    ```
    """,
    right="Right. In the last question the judge took the first place on all of the others: the win rates differ by 0.4, and so many verdicts changed. That the mean is one half says nothing about A there, only that the judge did not see a difference.",
)
