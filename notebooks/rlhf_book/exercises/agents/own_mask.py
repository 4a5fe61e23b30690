"""A mask from the places at which the environment spoke."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given


def my_own_mask(first: Tensor, end: Tensor, length: Tensor, width: int) -> Tensor:
    """[B, K] first and end of replies, [B] lengths -> [B, width], 1 on own."""
    place = torch.arange(width, device=length.device)
    written = place < length[:, None]
    heard = (place >= first[..., None]) & (place < end[..., None])  # [B, K, width]
    return (written & ~heard.any(1)).double()


def _with_padding(first: Tensor, end: Tensor, length: Tensor, width: int) -> Tensor:
    place = torch.arange(width)
    heard = (place >= first[..., None]) & (place < end[..., None])
    return (~heard.any(1)).double()


def _inverted(first: Tensor, end: Tensor, length: Tensor, width: int) -> Tensor:
    written = torch.arange(width) < length[:, None]
    return written.double() - my_own_mask(first, end, length, width)


def _end_included(first: Tensor, end: Tensor, length: Tensor, width: int) -> Tensor:
    return my_own_mask(first, torch.where(end > first, end + 1, end), length, width)


def _late(first: Tensor, end: Tensor, length: Tensor, width: int) -> Tensor:
    return my_own_mask(torch.where(end > first, first + 1, first), end, length, width)


def _last_turn(first: Tensor, end: Tensor, length: Tensor, width: int) -> Tensor:
    place = torch.arange(width)
    after = place >= end.amax(1, keepdim=True)
    return (after & (place < length[:, None])).double()


def _all(first: Tensor, end: Tensor, length: Tensor, width: int) -> Tensor:
    return (torch.arange(width) < length[:, None]).double()


def _case(
    first: list[list[int]], end: list[list[int]], length: list[int], width: int
) -> Case:
    given = torch.tensor(first), torch.tensor(end), torch.tensor(length)
    return Case(
        dict(zip(("first", "end", "length", "width"), (*given, width), strict=True))
    )


def _draw(generator: Generator) -> Case:
    B, K = integer(generator, 1, 4), integer(generator, 1, 4)
    cuts = torch.randint(0, 3, (B, 2 * K + 1), generator=generator)
    cuts[:, 0::2] += 1  # at least an own token between replies, and behind them
    places = cuts.cumsum(1)
    first, end, length = places[:, 0:-1:2], places[:, 1::2], places[:, -1]
    width = int(length.max()) + integer(generator, 0, 3)
    return Case({"first": first, "end": end, "length": length, "width": width})


OWN_MASK = Exercise(
    id="agents-own-mask",
    title="a mask with holes",
    concept="observation-mask",
    minutes=15,
    difficulty="core",
    statement=r"""
    An engine gives you transcripts as token ids and says where the environment spoke. Write `my_own_mask(first, end, length, width)`:
    1 on the policy's own tokens and 0 elsewhere, `[B, width]`. Reply $k$ of row $i$ stands at the places `first[i, k]` up to, but not including,
    `end[i, k]`; both are `[B, K]`, and a row with fewer replies has some whose end is their beginning. `length` is `[B]`, the tokens of a row;
    behind them is padding. The first printed case is `?k4?q7=11` and its end token: what should its mask be?
    """,
    solution=my_own_mask,
    cases=(
        _case([[2, 5]], [[3, 6]], [10], 12),
        _case([[2, 0], [2, 6]], [[4, 0], [5, 7]], [7, 9], 9),
        _case([[1]], [[1]], [3], 5),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _inverted,
            "The mask is inverted: the environment's tokens are trained and the policy's are not.",
        ),
        Mistake(_all, "The replies are still in: every token that was read has a 1."),
        Mistake(
            _with_padding,
            "Behind the last token there is padding, and yours has ones there.",
        ),
        Mistake(
            _end_included,
            "A reply ends before `end`: you take away the first token of the next turn.",
        ),
        Mistake(_late, "The first token of each reply is still trained."),
        Mistake(
            given(
                my_own_mask,
                first=lambda first: first[:, :1],
                end=lambda end: end[:, :1],
            ),
            "There may be several replies in a row.",
        ),
        Mistake(
            _last_turn,
            "Only the last turn is left. The calls before it are the policy's as well.",
        ),
    ),
    where="Compare the places 0, ..., width - 1 with each reply's beginning and end, then ask whether any reply holds the place.",
    idea="""
    Give the places a shape that meets `[B, K]`: each place against each reply is `[B, K, width]`. A place is heard
    if any reply holds it. Own is what was written and not heard.
    """,
    outline="""
    ```python
    place = torch.arange(width)
    written = ...  # [B, width]
    heard = (...) & (...)  # [B, K, width], from first up to, not including, end
    return (written & ...).double()
    ```
    """,
    right="Right. A mask that is made from the first end token, as in single turns, has no holes; this is why the sampler records it.",
)
