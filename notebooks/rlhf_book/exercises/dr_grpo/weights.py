"""What one token of a completion weighs, under three divisors."""

import torch
from torch import Generator, Tensor

from ..draws import books_batch, integer
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given, negated
from ..worked_example import BUDGET


def my_token_weights(advantages: Tensor, lengths: Tensor, budget: int) -> Tensor:
    """[B], [B] -> [3, B]: a token's weight, by own length, token mean, constant."""
    B = len(lengths)
    own = advantages / lengths / B
    batch = advantages / lengths.sum()
    constant = advantages / budget / B
    return torch.stack([own, batch, constant])


def _whole_completions(advantages: Tensor, lengths: Tensor, budget: int) -> Tensor:
    return my_token_weights(advantages, lengths, budget) * lengths


def _summed(advantages: Tensor, lengths: Tensor, budget: int) -> Tensor:
    own, batch, constant = my_token_weights(advantages, lengths, budget)
    return torch.stack([own * len(lengths), batch, constant * len(lengths)])


def _averaged_twice(advantages: Tensor, lengths: Tensor, budget: int) -> Tensor:
    own, batch, constant = my_token_weights(advantages, lengths, budget)
    return torch.stack([own, batch / len(lengths), constant])


def _without_sign(advantages: Tensor, lengths: Tensor, budget: int) -> Tensor:
    return my_token_weights(advantages, lengths, budget).abs()


def _longest(advantages: Tensor, lengths: Tensor, budget: int) -> Tensor:
    return my_token_weights(advantages, lengths, int(lengths.max()))


def _other_order(advantages: Tensor, lengths: Tensor, budget: int) -> Tensor:
    return my_token_weights(advantages, lengths, budget)[[1, 0, 2]]


def _draw(generator: Generator) -> Case:
    B = integer(generator, 1, 9)
    lengths = torch.randint(1, 40, (B,), generator=generator).double()
    budget = integer(generator, int(lengths.max()), 80)
    return Case(
        {
            "advantages": torch.randn(B, generator=generator, dtype=torch.float64),
            "lengths": lengths,
            "budget": budget,
        }
    )


_BOOK = books_batch()

WEIGHTS = Exercise(
    id="dr-grpo-weights",
    title="who pays, token by token",
    concept="length-bias",
    minutes=5,
    difficulty="warm-up",
    statement=r"""
    Before the first update every ratio is 1, and the gradient of the objective is a sum over tokens of a weight times
    $\nabla \log \pi(o_{i,t})$. Write `my_token_weights(advantages, lengths, budget)`, which returns that weight for
    *one* token of each completion, `[3, B]`: in the first row under GRPO's mean within each completion and then over
    completions, in the second under one mean over all tokens of the batch, in the third under Dr. GRPO's constant
    divisor, `budget`, with a mean over completions. `advantages` and `lengths` are `[B]`. A positive weight makes the
    token likelier.
    """,
    solution=my_token_weights,
    cases=(
        Case(
            {
                "advantages": _BOOK["advantages"],
                "lengths": _BOOK["mask"].sum(1),
                "budget": BUDGET,
            }
        ),
        Case(
            {
                "advantages": torch.tensor([-1.0, -1.0]),
                "lengths": torch.tensor([10.0, 1000.0]),
                "budget": 2000,
            }
        ),
        Case(
            {
                "advantages": torch.tensor([0.5]),
                "lengths": torch.tensor([4.0]),
                "budget": 8,
            }
        ),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _whole_completions,
            "This is what a whole completion weighs. The exercise asks for one of its tokens.",
        ),
        Mistake(
            _summed,
            "You sum over completions. GRPO and Dr. GRPO both take the mean over them.",
        ),
        Mistake(
            _averaged_twice,
            "The token mean is one mean over all tokens: there is no second mean over completions after it.",
        ),
        Mistake(
            _without_sign,
            "The sign is lost: a wrong completion's tokens are pushed down.",
        ),
        Mistake(
            negated(my_token_weights),
            "This is the gradient of the loss. The objective is maximised, so the sign turns.",
        ),
        Mistake(
            _longest,
            "You divide by the longest completion of the batch. That is no constant: it changes from batch to batch.",
        ),
        Mistake(
            given(my_token_weights, advantages=torch.ones_like),
            "The advantage is missing: these are the weights of a token with advantage 1.",
        ),
        Mistake(
            _other_order,
            "Two rows are exchanged: the first is the mean within each completion.",
        ),
    ),
    where="Write the objective for two completions of one and two tokens, and differentiate it by one log-probability.",
    idea=r"""
    Write for each of the three the factor in front of one token's term. Mean within, then over completions:
    $1/(B\,|o_i|)$. One mean over all tokens: one over their total number. Constant divisor: the length is replaced
    by the budget.
    """,
    outline="""
    ```python
    own = advantages / ... / ...
    batch = advantages / ...
    constant = advantages / ... / ...
    return torch.stack([own, batch, constant])
    ```
    """,
    right="Right. Which of the three rows would change if another completion of the batch became longer?",
)
