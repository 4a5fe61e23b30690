"""Find the bug: a monitor that calms down as the batch gets wider."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..bug import Bug


def suspect_gap(logp: Tensor, sampler_logp: Tensor, mask: Tensor) -> float:
    """Mean |log(policy / sampler)| over the trained tokens of a batch, [B, T] each."""
    apart = (logp - sampler_logp).abs() * mask
    return apart.mean().item()


def one_long_neighbour(gap: Callable[..., float]) -> None:
    """Three completions of four tokens, each read 0.1 too low, beside a long one."""
    for width in (4, 16, 64):
        lengths = torch.tensor([[4], [4], [4], [width]])
        mask = (torch.arange(width) < lengths).float()
        sampler = torch.full((4, width), -1.0)
        moved = sampler - 0.1 * (torch.arange(4) < 3).float()[:, None]
        found = gap(moved[:3], sampler[:3], mask[:3])
        print(f"padded to {width:2d}: gap of the three {found:.4f}")


def padding_changes_no_gap(gap: Callable[..., float]) -> None:
    """A batch that is padded further, with any values there, has the gap that it had."""
    logp, sampler = torch.tensor([[-1.0, -2.0]]), torch.tensor([[-1.5, -1.0]])
    narrow = gap(logp, sampler, torch.ones(1, 2))
    wide = [torch.nn.functional.pad(x, (0, 6), value=-9.0) for x in (logp, sampler)]
    mask = torch.nn.functional.pad(torch.ones(1, 2), (0, 6))
    found = gap(*wide, mask)
    assert abs(narrow - 0.75) < 1e-6, f"|0.5| and |-1| have the mean {narrow}"
    assert abs(found - narrow) < 1e-6, f"a gap of {narrow} became {found}"


def mended_gap(logp: Tensor, sampler_logp: Tensor, mask: Tensor) -> float:
    """Mean |log(policy / sampler)| over the trained tokens of a batch, [B, T] each."""
    apart = (logp - sampler_logp).abs() * mask
    return (apart.sum() / mask.sum()).item()


CALM = Bug(
    id="calm-monitor",
    title="a monitor that calms down",
    concept="diagnosis",
    minutes=4,
    statement="""
    A dashboard shows how far trainer and sampler are apart. As training goes on, some completions get long, and the number falls: somebody
    notes that the mismatch has gone. The cell pads the same three completions to the length of a neighbour. What should it print?
    """,
    wrong=suspect_gap,
    symptom=one_long_neighbour,
    reveals=padding_changes_no_gap,
    mended=mended_gap,
    idea="""
    Pad a batch to twice its width. Which part of the fraction changes, and which should?
    """,
    outline="""
    ```python
    apart = ...  # [B, T], 0 where nothing was trained
    return (apart.sum() / ...).item()
    ```
    """,
    moral="""
    The sum runs over trained tokens and the division over all places of the batch, so the metric measures how much padding there is. Monitors
    are code without a test: nobody sees that one is wrong, because nothing breaks. The habit: give every metric a batch
    whose value you know, pad it, and look again.
    """,
)

BUGS = (CALM,)
