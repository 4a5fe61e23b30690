"""What the checkers try a function on: the book's own batch, and batches drawn from a generator."""

import torch
from torch import Generator, Tensor

from rlhf_minimal.functional.advantages import group_normalized

from .worked_example import worked_example


def integer(generator: Generator, low: int, high: int) -> int:
    """One integer of low, ..., high - 1."""
    return int(torch.randint(low, high, (), generator=generator))


def uniform(generator: Generator, n: int) -> Tensor:
    """``n`` numbers between 0 and 1, in double precision."""
    return torch.rand(n, generator=generator, dtype=torch.float64)


def batch(
    lengths: list[int],
    generator: Generator,
    *,
    width: int | None = None,
    apart: float = 0.4,
) -> dict[str, Tensor]:
    """Log-probs of two policies that have parted, with rubbish under the padding.

    Args:
        lengths: trained tokens of each response.
        generator: where the numbers come from.
        width: T; default: the longest response.
        apart: standard deviation of the log-ratio of a token (nats).

    Returns:
        logp, old_logp and mask [B, T], advantages [B].
    """
    width = max(lengths) if width is None else width
    shape = (len(lengths), width)
    logp = -3 * torch.rand(shape, generator=generator) - 0.1
    return {
        "logp": logp,
        "old_logp": (logp + apart * torch.randn(shape, generator=generator)).clamp(
            max=-0.01
        ),
        "advantages": torch.randn(len(lengths), generator=generator),
        "mask": (torch.arange(width) < torch.tensor(lengths)[:, None]).float(),
    }


def any_batch(generator: Generator, *, holes: bool = False) -> dict[str, Tensor]:
    """One to six responses of any lengths, padded to a width that none of them need fill; every other one with holes."""
    rows, width = integer(generator, 1, 7), integer(generator, 1, 7)
    lengths = torch.randint(1, width + 1, (rows,), generator=generator)
    drawn = batch(lengths.tolist(), generator, width=width)
    if holes and integer(generator, 0, 2):
        drawn["mask"] = with_holes(drawn["mask"], generator)
    return drawn


def with_holes(mask: Tensor, generator: Generator) -> Tensor:
    """A mask with zeros inside its rows, as a tool's output leaves them; the first token of a row stays as it is."""
    holes = torch.rand(mask.shape, generator=generator) < 0.3
    holes[:, 0] = False
    return mask.masked_fill(holes, 0.0)


def holed(drawn: dict[str, Tensor]) -> dict[str, Tensor]:
    """A batch with holes in its mask, the same ones each time."""
    return {**drawn, "mask": with_holes(drawn["mask"], Generator().manual_seed(6))}


def to_the_front(mask: Tensor) -> Tensor:
    """As many trained tokens a row, as if none had a zero before it: what a slice by the length reads."""
    return (torch.arange(mask.shape[1]) < mask.sum(1, keepdim=True)).to(mask.dtype)


def books_batch() -> dict[str, Tensor]:
    """The batch of every chapter, with GRPO's advantages: what the reader sees in print."""
    printed = worked_example()
    rewards = printed.rewards[:, None]  # [B, 1]
    advantages = group_normalized(
        rewards, torch.ones_like(rewards), group_size=printed.group_size
    )[:, 0]
    assert printed.ref_logp is not None
    return {
        "logp": printed.logp.detach(),
        "old_logp": printed.old_logp,
        "ref_logp": printed.ref_logp,
        "advantages": advantages,
        "rewards": printed.rewards,
        "mask": printed.mask,
    }


def mean_of_means(x: Tensor, mask: Tensor) -> Tensor:
    """The average that most wrong answers get right: within each response, then over responses."""
    return ((x * mask).sum(1) / mask.sum(1)).mean()
