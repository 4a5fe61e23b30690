"""What the next sample of each problem is worth."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake


def my_gain(p: Tensor, tokens: Tensor, drawn: Tensor) -> Tensor:
    """[P] -> [P]: what one more completion adds to pass@n, for each token."""
    return p * (1 - p) ** drawn / tokens


def _forgets_the_drawn(p: Tensor, tokens: Tensor, drawn: Tensor) -> Tensor:
    return p / tokens


def _forgets_the_price(p: Tensor, tokens: Tensor, drawn: Tensor) -> Tensor:
    return p * (1 - p) ** drawn


def _in_all(p: Tensor, tokens: Tensor, drawn: Tensor) -> Tensor:
    return (1 - (1 - p) ** (drawn + 1)) / tokens


def _one_too_late(p: Tensor, tokens: Tensor, drawn: Tensor) -> Tensor:
    return p * (1 - p) ** (drawn + 1) / tokens


def _per_all_tokens(p: Tensor, tokens: Tensor, drawn: Tensor) -> Tensor:
    return p * (1 - p) ** drawn / (tokens * (drawn + 1))


def _the_unsolved(p: Tensor, tokens: Tensor, drawn: Tensor) -> Tensor:
    return (1 - p) ** drawn / tokens


def _draw(generator: Generator) -> Case:
    size = integer(generator, 1, 6)
    p = torch.rand(size, generator=generator, dtype=torch.float64)
    tokens = torch.randint(1, 30, (size,), generator=generator)
    drawn = torch.randint(0, 8, (size,), generator=generator)
    return Case({"p": p, "tokens": tokens, "drawn": drawn})


def _case(p: list[float], tokens: list[int], drawn: list[int]) -> Case:
    return Case(
        {
            "p": torch.tensor(p, dtype=torch.float64),
            "tokens": torch.tensor(tokens),
            "drawn": torch.tensor(drawn),
        }
    )


NEXT_SAMPLE = Exercise(
    id="tts-next-sample",
    title="where the next sample goes",
    concept="test-time-scaling",
    minutes=10,
    difficulty="core",
    statement=r"""
    You have a program that tells a right completion when it sees one, and a budget of tokens for many problems. Problem
    $i$ is solved by one completion with probability $p_i$, a completion costs it `tokens[i]`, and `drawn[i]` of them are
    planned so far. By how much does one more raise the expected number of solved problems, for each of its tokens? Write
    `my_gain(p, tokens, drawn)` for three tensors `[P]`.

    Predict before you run it: with one token each and four planned, which of $p = 0.05, 0.2, 0.8$ comes next? Which $p$
    is the best of all after $n$?
    """,
    solution=my_gain,
    cases=(
        _case([0.05, 0.2, 0.8], [1, 1, 1], [4, 4, 4]),
        _case([0.3, 0.3], [5, 20], [2, 2]),
        _case([0.6, 0.01], [8, 20], [3, 0]),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _forgets_the_drawn,
            "That is the first completion's gain. A later one helps only if the earlier ones are wrong.",
        ),
        Mistake(_forgets_the_price, "You have forgotten what a completion costs."),
        Mistake(
            _in_all,
            "That is all that is solved by then. How much of it does the last completion add?",
        ),
        Mistake(
            _one_too_late,
            "One factor too many: which completions have to be wrong for the next one to matter?",
        ),
        Mistake(
            _per_all_tokens,
            "The earlier completions are paid for already. Only the next one's tokens are spent now.",
        ),
        Mistake(
            _the_unsolved, "That the problem is still unsolved is not yet a solution."
        ),
    ),
    where="The next completion matters if all that were drawn are wrong and it is right.",
    idea="""
    Pass@$n$ is $1 - (1-p)^n$. One more completion raises it by $(1-p)^n - (1-p)^{n+1}$, and both terms share a
    factor. Per token: divide by what it costs.
    """,
    outline="""
    ```python
    return p * ... / ...
    ```
    """,
    right="Right. After n samples the next pays most, per completion, where p = 1/(n + 1): neither the easy nor the hard problems.",
)
