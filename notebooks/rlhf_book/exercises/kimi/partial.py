"""Partial rollouts: one completion, written by two policies."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given, swapped


def my_log_ratio(
    logp: Tensor, first: Tensor, second: Tensor, cuts: Tensor, lengths: Tensor
) -> Tensor:
    """[B, T] log-probs, new and twice old; [B] cuts, lengths: log-ratios, [B]."""
    place = torch.arange(logp.shape[1], device=logp.device)
    old_logp = torch.where(place < cuts[:, None], first, second)  # [B, T]
    written = place < lengths[:, None]  # [B, T]
    return torch.where(written, logp - old_logp, 0.0).sum(1)


def _parts(
    logp: Tensor, old_logp: Tensor, lengths: Tensor, divisor: Tensor | float = 1.0
) -> Tensor:
    written = torch.arange(logp.shape[1]) < lengths[:, None]
    return torch.where(written, logp - old_logp, 0.0).sum(1) / divisor


def _all_first(
    logp: Tensor, first: Tensor, second: Tensor, cuts: Tensor, lengths: Tensor
) -> Tensor:
    return _parts(logp, first, lengths)


def _all_second(
    logp: Tensor, first: Tensor, second: Tensor, cuts: Tensor, lengths: Tensor
) -> Tensor:
    return _parts(logp, second, lengths)


def _second_part_alone(
    logp: Tensor, first: Tensor, second: Tensor, cuts: Tensor, lengths: Tensor
) -> Tensor:
    place = torch.arange(logp.shape[1])
    kept = (place >= cuts[:, None]) & (place < lengths[:, None])
    return torch.where(kept, logp - second, 0.0).sum(1)


def _mean(
    logp: Tensor, first: Tensor, second: Tensor, cuts: Tensor, lengths: Tensor
) -> Tensor:
    return my_log_ratio(logp, first, second, cuts, lengths) / lengths


def _padding(
    logp: Tensor, first: Tensor, second: Tensor, cuts: Tensor, lengths: Tensor
) -> Tensor:
    place = torch.arange(logp.shape[1])
    return (logp - torch.where(place < cuts[:, None], first, second)).sum(1)


def _averaged(
    logp: Tensor, first: Tensor, second: Tensor, cuts: Tensor, lengths: Tensor
) -> Tensor:
    return _parts(logp, (first + second) / 2, lengths)


def _draw(generator: Generator) -> Case:
    B, T = integer(generator, 1, 5), integer(generator, 2, 7)
    logs = [
        -torch.rand(B, T, generator=generator, dtype=torch.float64) - 0.5
        for _ in range(3)
    ]
    lengths = torch.randint(1, T + 1, (B,), generator=generator)
    cuts = (torch.rand(B, generator=generator) * (lengths + 1)).long()
    names = ("logp", "first", "second")
    return Case(
        dict(zip(names, logs, strict=True)) | {"cuts": cuts, "lengths": lengths}
    )


_SHOWN = _draw(Generator().manual_seed(11))

PARTIAL = Exercise(
    id="kimi-partial",
    title="a completion with two authors",
    concept="kimi-k2",
    minutes=10,
    difficulty="core",
    statement=r"""
    A long completion is paused after `cuts[i]` tokens, when the model is updated, and then continued. Its first `cuts[i]` tokens
    came from one policy, those behind from the next. `first` and `second` hold the log-probs of *all* tokens
    under these two policies, `lengths` the numbers of tokens; what stands behind a completion's end has no meaning. Write
    `my_log_ratio(logp, first, second, cuts, lengths)`: the log-ratio of each completion to what really wrote it. A cut may be 0
    or the whole length. Which rule for the cuts makes the two authors together *one* policy, with one fixed distribution
    after each prefix, so that it can stand for $\pi_{old}$ in section 2?
    """,
    solution=my_log_ratio,
    cases=(
        _SHOWN,
        *(_draw(Generator().manual_seed(seed)) for seed in (3, 5, 8)),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _all_first,
            "You use the first policy for the whole completion. It has not written the end.",
        ),
        Mistake(
            _all_second,
            "You use the second policy for the whole completion. It has not written the beginning.",
        ),
        Mistake(
            swapped(my_log_ratio, "first", "second"),
            "The two policies are exchanged: the first wrote the tokens in front of the cut.",
        ),
        Mistake(
            given(my_log_ratio, cuts=lambda cuts: cuts + 1),
            "The first policy gets one token too many: with a cut of 0 it has written nothing.",
        ),
        Mistake(
            _second_part_alone,
            "You leave the first part out. It is part of the completion that got the reward.",
        ),
        Mistake(
            _mean,
            "You divide by the length. The log-ratio of a completion is a sum over its tokens.",
        ),
        Mistake(
            _padding,
            "Numbers behind the end of a completion enter your sum.",
        ),
        Mistake(
            _averaged,
            "You average the two policies' log-probs. Each token was written by one of them.",
        ),
    ),
    where="Decide for each place, by its number, which policy has written it, and add up what was written.",
    idea="""
    Make two tables of truth values `[B, T]`: was place $t$ written before the cut, and was it written at all? The
    first chooses between the two old log-probs, the second says what is summed.
    """,
    outline="""
    ```python
    place = torch.arange(...)
    old_logp = torch.where(..., first, second)  # [B, T]
    written = ...  # [B, T]
    return torch.where(written, ..., 0.0).sum(1)
    ```
    """,
    right="Right. With one cut for all completions of a prompt the next token at each prefix comes from a fixed distribution: "
    "one policy, and the fit of section 2 can be tied to it. With a cut of its own for each completion the same prefix is "
    "continued by either policy, the residual cannot vanish for all of them, and the fit ends at the tilt of a geometric mean "
    "over the cuts (Kimi in depth).",
)
