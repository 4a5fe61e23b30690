"""Find the bug: two ways of saving work that save the wrong thing."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..bug import Bug

# ── rows without an advantage ────────────────────────────────────────────────────────────────────────────────────


def suspect_thrifty_loss(logp: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """Token mean of [B, T], advantages [B]; rows without an advantage are skipped."""
    keep = advantages != 0
    objective = logp[keep] * advantages[keep, None] * mask[keep]
    return -objective.sum() / mask[keep].sum()


def pull_of_a_token(loss: Callable[..., Tensor]) -> None:
    """Ever fewer of sixteen rows have an advantage: how hard is one token pulled?"""
    for living in (16, 8, 4, 2):
        logp = torch.full((16, 5), -1.0, requires_grad=True)
        advantages = torch.tensor([1.0, -1.0] * 8) * (torch.arange(16) < living)
        loss(logp, advantages, torch.ones(16, 5)).backward()
        assert logp.grad is not None
        pull = -logp.grad[0, 0].item()
        print(f"{living:2d} of 16 rows have an advantage: pull {pull:.4f}")


def the_same_as_reading_them(loss: Callable[..., Tensor]) -> None:
    """Not reading a row changes nothing: each token is pulled with its advantage over all tokens of the batch."""
    mask = (torch.arange(4) < torch.tensor([[4], [2], [3], [1]])).float()
    for advantages in (
        torch.tensor([1.0, -1.0, 0.5, -0.5]),
        torch.tensor([1.0, -1.0, 0.0, 0.0]),
    ):
        logp = torch.full((4, 4), -1.0, requires_grad=True)
        loss(logp, advantages, mask).backward()
        assert logp.grad is not None
        plain = advantages[:, None] * mask / 10
        off = (-logp.grad / plain)[0, 0].item()
        assert (-logp.grad - plain).abs().max() < 1e-6, (
            f"a token is pulled {off:.3f} times as hard as it should be"
        )


def mended_thrifty_loss(logp: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """Token mean of [B, T], advantages [B]; rows without an advantage are skipped."""
    keep = advantages != 0
    objective = logp[keep] * advantages[keep, None] * mask[keep]
    return -objective.sum() / mask.sum()


THRIFTY_LOSS = Bug(
    id="thrifty-loss",
    title="a saving with interest",
    concept="idle-rows",
    minutes=5,
    statement="""
    Rows of advantage zero have no gradient, so this loss leaves them out. It is faster, a test on a batch without
    such rows passes, and yet training becomes unsteady just when it goes well. The cell prints the pull on one token
    of one row, which is the same row each time. Why should it care about its neighbours?
    """,
    wrong=suspect_thrifty_loss,
    symptom=pull_of_a_token,
    reveals=the_same_as_reading_them,
    mended=mended_thrifty_loss,
    idea="""
    Take four rows of which two have advantage 0. By how many tokens is the sum divided with and without them? Which
    number belongs to the plain loss?
    """,
    outline="""
    ```python
    keep = advantages != 0
    objective = ...  # rows that are read
    return -objective.sum() / ...  # tokens of whom?
    ```
    """,
    moral="""
    The rows were left out of the numerator, where they are zero, and of the denominator, where they are not. So the
    fewer groups disagree, the longer the step: a learning rate that depends on the batch. DAPO does shrink
    the batch on purpose, and fills it up again with other groups. The habit: a technique that saves time is compared with
    the plain code by its *gradient*, on a batch in which there is something to save.
    """,
)


# ── rows that have ended ─────────────────────────────────────────────────────────────────────────────────────────


def suspect_decode(start: Tensor, budget: int) -> Tensor:
    """Counts down to 0, which ends it: [B] -> [B, budget], -1 where nothing is."""
    written, rows, cache = (
        torch.full((len(start), budget), -1),
        torch.arange(len(start)),
        start.clone(),
    )
    for t in range(budget):
        tokens = cache  # all that the toy remembers is what it has to write next
        written[rows, t] = tokens
        writing = (tokens > 0).nonzero().squeeze(-1)
        if len(writing) == 0:
            break
        rows = rows[writing]
        cache = cache[: len(rows)] - 1
    return written


def countdowns(decode: Callable[..., Tensor]) -> None:
    """Three completions each, in three batches."""
    for start in ([4, 3, 2], [1, 3, 4], [4, 1, 3]):
        written = decode(torch.tensor(start), 5).tolist()
        print(start, "->", [[x for x in row if x >= 0] for row in written])


def neighbours_do_not_matter(decode: Callable[..., Tensor]) -> None:
    """A completion in a batch is the one that its prompt gets alone."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        start = torch.randint(0, 6, (4,), generator=generator)
        together, alone = (
            decode(start, 6),
            torch.cat([decode(one, 6) for one in start.split(1)]),
        )
        found = (together != alone).any(1).nonzero().flatten().tolist()
        assert not found, (
            f"among {start.tolist()}, rows {found} get other completions than alone"
        )


def mended_decode(start: Tensor, budget: int) -> Tensor:
    """Counts down to 0, which ends it: [B] -> [B, budget], -1 where nothing is."""
    written, rows, cache = (
        torch.full((len(start), budget), -1),
        torch.arange(len(start)),
        start.clone(),
    )
    for t in range(budget):
        tokens = cache  # all that the toy remembers is what it has to write next
        written[rows, t] = tokens
        writing = (tokens > 0).nonzero().squeeze(-1)
        if len(writing) == 0:
            break
        rows = rows[writing]
        cache = cache[writing] - 1
    return written


LOST_CACHE = Bug(
    id="lost-cache",
    title="a completion in bad company",
    concept="finished-rows",
    minutes=5,
    statement="""
    A sampler takes rows out of the batch as they end. This one is a toy that counts down, so that everybody can see
    what it should have written: from the number it is given to 0. The first batch is right, and so would be any test
    of a single row. Which line is wrong, and for which batches does it happen to be right?
    """,
    wrong=suspect_decode,
    symptom=countdowns,
    reveals=neighbours_do_not_matter,
    mended=mended_decode,
    idea="""
    Let the first of two rows end early. Which row's cache does the second one get in the next step?
    """,
    outline="""
    ```python
    rows = rows[writing]
    cache = ...  # selected by the same index, then counted down
    ```
    """,
    moral="""
    The rows that go on are selected by number; their cache is merely shortened, so a row is handed the cache of a
    neighbour that has ended. Shapes agree, nothing crashes, and where rows end from the last to the first the result
    is even right. In a language model the text stays fluent, and continues somebody else's prompt. The habit:
    everything that is indexed by row is selected by the same index in the same place (cache, mask, tokens, row
    numbers), and a test compares each row of a batch with the same row alone.
    """,
)

BUGS = (THRIFTY_LOSS, LOST_CACHE)
