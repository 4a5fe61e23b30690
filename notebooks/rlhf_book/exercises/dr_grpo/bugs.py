"""Find the bug: two implementations that promise what this chapter derives, each as it was once published."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..bug import Bug

# ── half of a repair ─────────────────────────────────────────────────────────────────────────────────────────────


def suspect_unbiased(
    logp: Tensor, old_logp: Tensor, rewards: Tensor, mask: Tensor, group_size: int
) -> Tensor:
    """A loss "without length and difficulty bias": [B, T], and rewards [B]."""
    groups = rewards.view(-1, group_size)
    advantages = (
        groups - groups.mean(1, keepdim=True)
    ).flatten()  # no division by the std
    ratio = torch.exp(logp - old_logp)
    free = ratio * advantages[:, None]
    clipped = ratio.clamp(0.8, 1.2) * advantages[:, None]
    per_completion = (torch.minimum(free, clipped) * mask).sum(1) / mask.sum(1)  # [B]
    return -per_completion.mean()


def price_of_a_wrong_token(loss: Callable[..., Tensor]) -> None:
    """One right completion of 8 tokens, three wrong; one of the wrong ones grows."""
    for length in (2, 8, 32, 128):
        lengths = torch.tensor([8, length, 8, 8])
        mask = (torch.arange(128) < lengths[:, None]).float()
        logp = torch.full((4, 128), -1.0, requires_grad=True)
        loss(
            logp, logp.detach(), torch.tensor([1.0, 0.0, 0.0, 0.0]), mask, 4
        ).backward()
        assert logp.grad is not None
        price = 1000 * logp.grad[1, 0].item()
        print(f"a wrong one of {length:3d} tokens: {price:7.4f} thousandths a token")


def equal_advantages_equal_tokens(loss: Callable[..., Tensor]) -> None:
    """At one advantage each token has to weigh the same, however long its completion, the
    batch's longest one and the padding are, and half as much among twice as many."""
    weights = []
    short, mixed = [1, 2, 3, 3], [1, 2, 8, 8]
    for lengths, width in ((mixed, 8), (short, 8), (short, 3), (mixed + mixed, 8)):
        mask = (torch.arange(width) < torch.tensor(lengths)[:, None]).float()
        logp = torch.full(mask.shape, -1.0, requires_grad=True)
        rewards = torch.tensor([0.0, 0.0, 0.0, 1.0] * (len(lengths) // 4))
        loss(logp, logp.detach(), rewards, mask, 4).backward()
        assert logp.grad is not None
        weights += [len(lengths) * logp.grad[i, 0].item() for i in range(3)]
    least, most = min(weights), max(weights)
    assert most - least < 1e-5 * most, (
        f"times the number of completions one weighs {least:.5f}, another {most:.5f}"
    )


def mended_unbiased(
    logp: Tensor, old_logp: Tensor, rewards: Tensor, mask: Tensor, group_size: int
) -> Tensor:
    """A loss "without length and difficulty bias": [B, T], and rewards [B]."""
    budget = 128  # a setting of the run, never read off a batch
    groups = rewards.view(-1, group_size)
    advantages = (
        groups - groups.mean(1, keepdim=True)
    ).flatten()  # no division by the std
    ratio = torch.exp(logp - old_logp)
    free = ratio * advantages[:, None]
    clipped = ratio.clamp(0.8, 1.2) * advantages[:, None]
    per_completion = (torch.minimum(free, clipped) * mask).sum(1) / budget  # [B]
    return -per_completion.mean()


HALF_A_REPAIR = Bug(
    id="half-a-repair",
    title="two biases, one of them gone",
    concept="drgrpo-fix",
    minutes=5,
    statement="""
    The option is called `drgrpo`, and its documentation says that it removes both biases. The standard deviation is
    gone, as promised. Is the length bias gone, too? The cell
    prints what one token of a wrong completion pays as that completion grows. What should the numbers do?
    """,
    wrong=suspect_unbiased,
    symptom=price_of_a_wrong_token,
    reveals=equal_advantages_equal_tokens,
    mended=mended_unbiased,
    idea="""
    Give two completions the same advantage and different lengths, and print the gradient at one token of each. Two
    divisions could make them differ. Which of the two is still there?
    """,
    outline="""
    ```python
    budget = ...  # a setting of the run: which tensor of the batch may it depend on?
    per_completion = (...).sum(1) / budget
    return -per_completion.mean()
    ```
    """,
    moral="""
    The mean within each completion is still there: the option changed the advantage and left the aggregation alone. The
    two biases live in two columns of the table, and each needs its own repair. The habit: state the property that the
    name promises (equal advantages, equal weight of every token) and test that, for lengths that differ. And from batch
    to batch: with the mean over the batch's tokens, its longest completion or its padded width as the denominator all
    tokens of one batch weigh the same, and those of the next weigh something else; a plain sum grows with the batch.
    """,
)


# ── the price of memory ──────────────────────────────────────────────────────────────────────────────────────────


def suspect_accumulation(objective: Tensor, mask: Tensor, micro_batches: int) -> Tensor:
    """The token mean of a batch too large for memory; rows dealt out in order."""
    total = torch.zeros(())
    for x, m in zip(
        objective.tensor_split(micro_batches),
        mask.tensor_split(micro_batches),
        strict=True,
    ):
        total = total - (x * m).sum() / m.sum() / micro_batches
    return total


def weight_by_memory(loss: Callable[..., Tensor]) -> None:
    """Two completions of 2 tokens, two of 200: what a token of each kind weighs."""
    mask = (torch.arange(200) < torch.tensor([2, 2, 200, 200])[:, None]).float()
    for micro_batches in (1, 2, 4):
        objective = torch.zeros(4, 200, requires_grad=True)
        loss(objective, mask, micro_batches).backward()
        assert objective.grad is not None
        short, long = -objective.grad[0, 0].item(), -objective.grad[2, 0].item()
        print(
            f"{micro_batches} micro-batches: a short one's token {short:.5f}, "
            f"a long one's {long:.5f}"
        )


def memory_does_not_matter(loss: Callable[..., Tensor]) -> None:
    """The gradient may not depend on the number of micro-batches."""
    mask = (torch.arange(5) < torch.tensor([1, 5, 2, 4, 3, 5])[:, None]).float()
    gradients = []
    for micro_batches in (1, 2, 3, 4, 6):
        objective = torch.zeros(6, 5, requires_grad=True)
        loss(objective, mask, micro_batches).backward()
        assert objective.grad is not None
        gradients.append(objective.grad)
    apart = max((gradient - gradients[0]).abs().max().item() for gradient in gradients)
    assert apart < 1e-7, (
        f"it moves by up to {apart:.4f} with the number of micro-batches"
    )


def mended_accumulation(objective: Tensor, mask: Tensor, micro_batches: int) -> Tensor:
    """The token mean of a batch too large for memory; rows dealt out in order."""
    total, tokens = torch.zeros(()), mask.sum()  # counted once, before the batch is cut
    for x, m in zip(
        objective.tensor_split(micro_batches),
        mask.tensor_split(micro_batches),
        strict=True,
    ):
        total = total - (x * m).sum() / tokens
    return total


OWN_DENOMINATORS = Bug(
    id="own-denominators",
    title="a result that depends on your memory",
    concept="grad-accumulation-normaliser",
    minutes=10,
    statement="""
    One run on a large machine, one on a small one that needs gradient accumulation. Same seed, same data, same batch
    size, and the curves part. Each micro-batch takes the mean over its tokens, and the micro-batches are averaged. Both
    steps sound right. The cell prints what one token weighs. Which of the three lines of numbers is the token mean?
    """,
    wrong=suspect_accumulation,
    symptom=weight_by_memory,
    reveals=memory_does_not_matter,
    mended=mended_accumulation,
    idea="""
    Cut a batch with 1 and 9 tokens into two. What are the two means, what is their mean, and what is the mean of
    all ten tokens?
    """,
    outline="""
    ```python
    tokens = ...  # counted when: before the batch is cut or inside the loop?
    for x, m in ...:
        total = total - (...).sum() / tokens
    return total  # nothing is divided by the number of parts
    ```
    """,
    moral="""
    A mean of means is the mean only if all parts have the same count, and here the count is the number of tokens. The
    denominator belongs to the optimiser step: count it once, before the batch is cut, and let the parts *sum*. The
    habit: run one step with one micro-batch and with many, and compare the gradients.
    """,
)

BUGS = (HALF_A_REPAIR, OWN_DENOMINATORS)
