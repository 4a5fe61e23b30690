"""Tokens of an update, with the prompt once for each completion and once for all."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake


def my_tokens(prompt: int, lengths: Tensor) -> tuple[int, int]:
    """Lengths [G] -> tokens of whole padded rows, tokens with the prompt read once."""
    whole = len(lengths) * (prompt + int(lengths.max()))
    return whole, prompt + int(lengths.sum())


def _prompt_for_each(prompt: int, lengths: Tensor) -> tuple[int, int]:
    return my_tokens(prompt, lengths)[0], len(lengths) * prompt + int(lengths.sum())


def _padded(prompt: int, lengths: Tensor) -> tuple[int, int]:
    return my_tokens(prompt, lengths)[0], prompt + len(lengths) * int(lengths.max())


def _never_padded(prompt: int, lengths: Tensor) -> tuple[int, int]:
    return len(lengths) * prompt + int(lengths.sum()), my_tokens(prompt, lengths)[1]


def _shared_twice(prompt: int, lengths: Tensor) -> tuple[int, int]:
    return prompt + len(lengths) * int(lengths.max()), my_tokens(prompt, lengths)[1]


def _swapped(prompt: int, lengths: Tensor) -> tuple[int, int]:
    whole, shared = my_tokens(prompt, lengths)
    return shared, whole


def _ratio(prompt: int, lengths: Tensor) -> float:
    whole, shared = my_tokens(prompt, lengths)
    return whole / shared


def _completions_alone(prompt: int, lengths: Tensor) -> tuple[int, int]:
    return len(lengths) * int(lengths.max()), int(lengths.sum())


def _pairs(prompt: int, lengths: Tensor) -> tuple[int, int]:
    pairs = prompt**2 + int(((prompt + lengths) * lengths).sum())
    return len(lengths) * (prompt + int(lengths.max())) ** 2, pairs


def _draw(generator: Generator) -> Case:
    lengths = torch.randint(1, 40, (integer(generator, 2, 17),), generator=generator)
    return Case({"prompt": integer(generator, 1, 100), "lengths": lengths})


PREFIX = Exercise(
    id="fast-prefix",
    title="tokens that need not be read",
    concept="shared-prefix",
    minutes=5,
    difficulty="warm-up",
    statement=r"""
    One prompt of $S$ tokens has $G$ completions. Write `my_tokens(prompt, lengths)` with $S$ and the lengths `[G]` (a
    tensor of integers). It returns two counts of tokens that a forward reads: with one row for each completion,
    prompt included, padded to the longest; and with the prompt read once and each completion as long as it is. Then
    look at their ratio for $G = 8$ equal completions, as $S$ goes from 0 to a thousand times their length.
    """,
    solution=my_tokens,
    cases=(
        Case({"prompt": 24, "lengths": torch.tensor([3, 12, 7, 40])}),
        Case({"prompt": 5, "lengths": torch.tensor([2, 2])}),
        Case({"prompt": 100, "lengths": torch.tensor([1, 30, 2])}),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _prompt_for_each,
            "Your second count still reads the prompt once for each completion.",
        ),
        Mistake(
            _padded,
            "Your second count pads the completions. Each is to be read as long as it is.",
        ),
        Mistake(
            _never_padded,
            "Your first count has no padding: a rectangle is as wide as its longest row.",
        ),
        Mistake(
            _shared_twice,
            "Your first count shares the prompt already. In whole rows every row begins with it.",
        ),
        Mistake(_swapped, "The two counts are exchanged: whole rows come first."),
        Mistake(
            _ratio,
            "This is the ratio of the two counts. The exercise asks for both of them.",
        ),
        Mistake(_completions_alone, "Both counts leave the prompt out."),
        Mistake(
            _pairs,
            "These are pairs of tokens, as attention sees them. The exercise asks for tokens.",
        ),
    ),
    where="Draw the rows as a rectangle, and cross out what has been read before and what is padding.",
    idea="""
    The rectangle has $G$ rows of the prompt's and the longest completion's tokens. With the prompt read once
    nothing is repeated and nothing padded: what remains of the rectangle?
    """,
    outline="""
    ```python
    whole = len(lengths) * (...)
    return whole, ... + ...
    ```
    """,
    right="Right. With equal lengths the ratio tends to G as the prompt grows, and to 1 as it vanishes.",
)
