"""What one token of the policy weighs under three divisors."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake
from ..mistakes import negated


def my_token_weights(advantage: Tensor, own: Tensor, heard: Tensor) -> Tensor:
    """[B] advantages, own and reply tokens -> [3, B] weights of an own token."""
    read = own + heard
    per_row = advantage / len(own)
    return torch.stack([per_row / own, per_row / read, advantage / read.sum()])


def _no_batch(advantage: Tensor, own: Tensor, heard: Tensor) -> Tensor:
    read = own + heard
    return torch.stack([advantage / own, advantage / read, advantage / read.sum()])


def _heard_alone(advantage: Tensor, own: Tensor, heard: Tensor) -> Tensor:
    read = own + heard
    return torch.stack(
        [
            advantage / len(own) / own,
            advantage / len(own) / heard.clamp(min=1),
            advantage / read.sum(),
        ]
    )


def _own_batch(advantage: Tensor, own: Tensor, heard: Tensor) -> Tensor:
    read = own + heard
    per_row = advantage / len(own)
    return torch.stack([per_row / own, per_row / read, advantage / own.sum()])


def _rows(advantage: Tensor, own: Tensor, heard: Tensor) -> Tensor:
    return own * my_token_weights(advantage, own, heard)


def _mean_length(advantage: Tensor, own: Tensor, heard: Tensor) -> Tensor:
    read = own + heard
    per_row = advantage / len(own)
    return torch.stack([per_row / own, per_row / read, advantage / read.mean()])


def _swapped(advantage: Tensor, own: Tensor, heard: Tensor) -> Tensor:
    return my_token_weights(advantage, own, heard)[[1, 0, 2]]


def _case(advantage: list[float], own: list[float], heard: list[float]) -> Case:
    rows = [torch.tensor(x, dtype=torch.float64) for x in (advantage, own, heard)]
    return Case(dict(zip(("advantage", "own", "heard"), rows, strict=True)))


def _draw(generator: Generator) -> Case:
    B = integer(generator, 2, 6)
    own = torch.randint(1, 9, (B,), generator=generator).double()
    heard = torch.randint(0, 9, (B,), generator=generator).double()
    advantage = torch.randn(B, generator=generator, dtype=torch.float64)
    return Case({"advantage": advantage, "own": own, "heard": heard})


TOKEN_WEIGHTS = Exercise(
    id="agents-token-weights",
    title="which tool is favoured?",
    concept="replies-in-the-divisor",
    minutes=10,
    difficulty="warm-up",
    statement=r"""
    Two transcripts of four own tokens each, with advantages $+1$ and $-1$; the first has a reply of one token, the second one of four.
    What does *one own token* weigh in the loss? Write `my_token_weights(advantage, own, heard)`, with the numbers $n_i$ of own tokens and
    $h_i$ of tokens of replies of each row. The result is `[3, B]`, one row for each loss, where $s_i$ is the sum of $A_i \log \pi$ over the own tokens of row $i$:

    1. $\frac1B \sum_i s_i / n_i$, a mean over own tokens;
    2. $\frac1B \sum_i s_i / (n_i + h_i)$, replies in each row's divisor;
    3. $\sum_i s_i \,/ \sum_i (n_i + h_i)$, one divisor for the batch.

    Then exchange the two advantages: which of the three gives the tool that says less the larger weight,
    right or wrong?
    """,
    solution=my_token_weights,
    cases=(
        _case([1.0, -1.0], [4.0, 4.0], [1.0, 4.0]),
        _case([-1.0, 1.0], [4.0, 4.0], [1.0, 4.0]),
        _case([1.0, 0.5, -1.5], [2.0, 3.0, 5.0], [0.0, 7.0, 2.0]),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            negated(my_token_weights),
            "The sign is turned: a positive advantage has a positive weight.",
        ),
        Mistake(
            _swapped,
            "The first two are exchanged: the first divides by own tokens alone.",
        ),
        Mistake(
            _no_batch,
            "The first two are means over rows as well. How many rows are there?",
        ),
        Mistake(
            _heard_alone,
            "The second divides by all that was read, not by the replies alone.",
        ),
        Mistake(
            _own_batch,
            "The third divides by all tokens of the batch, replies included.",
        ),
        Mistake(
            _rows,
            "That is the weight of a whole row. Asked is that of one of its tokens.",
        ),
        Mistake(
            _mean_length,
            "The third has one divisor, the batch's sum of tokens, not their mean.",
        ),
    ),
    where="Write each loss as a sum over own tokens of something times the log-prob: that something is asked.",
    idea="""
    Write each loss as a sum over own tokens of weight × log-prob. (1) divides by $B$ and by the row's own tokens,
    (2) by $B$ and by all that the row holds, (3) by all tokens of the batch.
    """,
    outline="""
    ```python
    read = ...  # [B], own and heard
    per_row = ...
    return torch.stack([per_row / ..., per_row / ..., advantage / ...])
    ```
    """,
    right="Right. The second divides a row by what its tool says, so of two good calls the terse one is pushed more, and of two bad ones the talkative one is held against less.",
)
