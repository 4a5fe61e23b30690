"""Dr. GRPO's loss, whole."""

import torch
from torch import Generator, Tensor

from ..draws import batch, books_batch, integer, uniform
from ..exercise import Case, Exercise, Mistake
from ..mistakes import negated
from ..worked_example import BUDGET, GROUP_SIZE


def my_dr_grpo_loss(
    logp: Tensor,
    old_logp: Tensor,
    rewards: Tensor,
    mask: Tensor,
    group_size: int,
    budget: int,
) -> Tensor:
    """[B, T], rewards [B], groups together -> scalar to minimise; clip range 0.2."""
    groups = rewards.view(-1, group_size)  # [P, G]
    advantages = (groups - groups.mean(1, keepdim=True)).view(-1, 1)  # [B, 1]
    ratio = torch.exp(logp - old_logp)  # [B, T]
    objective = torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
    return -(objective * mask).sum() / (len(rewards) * budget)


def _terms(logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    ratio = torch.exp(logp - old_logp)
    return (
        torch.minimum(
            ratio * advantages[:, None], ratio.clamp(0.8, 1.2) * advantages[:, None]
        )
        * mask
    )


def _centred(rewards: Tensor, group_size: int) -> Tensor:
    groups = rewards.view(-1, group_size)
    return (groups - groups.mean(1, keepdim=True)).flatten()


def _with_std(
    logp: Tensor,
    old_logp: Tensor,
    rewards: Tensor,
    mask: Tensor,
    group_size: int,
    budget: int,
) -> Tensor:
    groups = rewards.view(-1, group_size)
    advantages = (groups - groups.mean(1, keepdim=True)) / (
        groups.std(1, keepdim=True) + 1e-4
    )
    return -_terms(logp, old_logp, advantages.flatten(), mask).sum() / (
        len(rewards) * budget
    )


def _own_length(
    logp: Tensor,
    old_logp: Tensor,
    rewards: Tensor,
    mask: Tensor,
    group_size: int,
    budget: int,
) -> Tensor:
    terms = _terms(logp, old_logp, _centred(rewards, group_size), mask)
    return -(terms.sum(1) / mask.sum(1)).mean()


def _token_mean(
    logp: Tensor,
    old_logp: Tensor,
    rewards: Tensor,
    mask: Tensor,
    group_size: int,
    budget: int,
) -> Tensor:
    return (
        -_terms(logp, old_logp, _centred(rewards, group_size), mask).sum() / mask.sum()
    )


def _padded_width(
    logp: Tensor,
    old_logp: Tensor,
    rewards: Tensor,
    mask: Tensor,
    group_size: int,
    budget: int,
) -> Tensor:
    return (
        -_terms(logp, old_logp, _centred(rewards, group_size), mask).sum()
        / mask.numel()
    )


def _only_budget(
    logp: Tensor,
    old_logp: Tensor,
    rewards: Tensor,
    mask: Tensor,
    group_size: int,
    budget: int,
) -> Tensor:
    return -_terms(logp, old_logp, _centred(rewards, group_size), mask).sum() / budget


def _group_mean(
    logp: Tensor,
    old_logp: Tensor,
    rewards: Tensor,
    mask: Tensor,
    group_size: int,
    budget: int,
) -> Tensor:
    return -_terms(logp, old_logp, _centred(rewards, group_size), mask).sum() / (
        group_size * budget
    )


def _whole_batch(
    logp: Tensor,
    old_logp: Tensor,
    rewards: Tensor,
    mask: Tensor,
    group_size: int,
    budget: int,
) -> Tensor:
    return my_dr_grpo_loss(logp, old_logp, rewards, mask, len(rewards), budget)


def _leave_one_out(
    logp: Tensor,
    old_logp: Tensor,
    rewards: Tensor,
    mask: Tensor,
    group_size: int,
    budget: int,
) -> Tensor:
    return (
        my_dr_grpo_loss(logp, old_logp, rewards, mask, group_size, budget)
        * group_size
        / (group_size - 1)
    )


def _no_clip(
    logp: Tensor,
    old_logp: Tensor,
    rewards: Tensor,
    mask: Tensor,
    group_size: int,
    budget: int,
) -> Tensor:
    terms = torch.exp(logp - old_logp) * _centred(rewards, group_size)[:, None] * mask
    return -terms.sum() / (len(rewards) * budget)


def _case(
    drawn: dict[str, Tensor], rewards: Tensor, group_size: int, budget: int
) -> Case:
    tensors = {name: drawn[name] for name in ("logp", "old_logp")}
    return Case(
        {
            **tensors,
            "rewards": rewards,
            "mask": drawn["mask"],
            "group_size": group_size,
            "budget": budget,
        }
    )


def _draw(generator: Generator) -> Case:
    group_size, prompts, width = (
        integer(generator, 2, 5),
        integer(generator, 1, 4),
        integer(generator, 1, 7),
    )
    B = group_size * prompts
    lengths = torch.randint(1, width + 1, (B,), generator=generator).tolist()
    rewards = uniform(generator, B).float()
    rewards = (rewards > 0.5).float() if integer(generator, 0, 2) else 2 * rewards
    drawn = batch(lengths, generator, width=width)
    return _case(drawn, rewards, group_size, integer(generator, width, 3 * width + 1))


_BOOK = books_batch()

LOSS = Exercise(
    id="dr-grpo-loss",
    title="the loss, done right",
    concept="drgrpo-fix",
    minutes=15,
    difficulty="core",
    statement=r"""
    Write `my_dr_grpo_loss(logp, old_logp, rewards, mask, group_size, budget)`, the objective of this chapter as a
    *loss*: rewards minus their group's mean, the clip of GRPO with $\varepsilon = 0.2$ on both sides, and one divisor
    for every token, $B$ times the generation budget. `logp`, `old_logp` and `mask` are `[B, T]`; under a 0 of the
    mask stands some finite number without meaning. `rewards` is `[B]`, and the `group_size` completions of a prompt
    stand together. There is no KL term. The checker compares the value and the gradient with respect to `logp`.
    """,
    solution=my_dr_grpo_loss,
    cases=(
        _case(_BOOK, _BOOK["rewards"], GROUP_SIZE, BUDGET),
        _case(
            batch([2, 5, 1, 3], Generator().manual_seed(3)),
            torch.tensor([1.0, 0.0, 0.0, 1.0]),
            2,
            8,
        ),
        _case(
            batch([4, 1, 1], Generator().manual_seed(4), width=6),
            torch.tensor([0.5, 2.0, 0.0]),
            3,
            16,
        ),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _with_std,
            "The division by the group's standard deviation is still there. This chapter drops it.",
        ),
        Mistake(
            _own_length,
            "You divide each completion by its own length: half of the repair is missing.",
        ),
        Mistake(
            _token_mean,
            "You divide by the number of tokens in this batch. That number is not a constant: it is decided by the "
            "policy.",
        ),
        Mistake(
            _padded_width,
            "You divide by the padded width. The budget is a setting and does not depend on a batch.",
        ),
        Mistake(
            _only_budget, "You sum over completions. The objective is a mean over them."
        ),
        Mistake(
            _group_mean,
            "You take the mean within a group and then sum over the prompts.",
        ),
        Mistake(
            _whole_batch,
            "You compare each completion with the whole batch. Its rivals are those of its own prompt.",
        ),
        Mistake(
            _leave_one_out,
            "This is leave-one-out, RLOO's baseline. Here the mean contains the completion's own reward.",
        ),
        Mistake(
            _no_clip,
            "The clip is missing. Off-policy, tokens that have moved far enough are to fall silent.",
        ),
        Mistake(negated(my_dr_grpo_loss), "The sign: a loss is minimised."),
    ),
    where="Write the number of completions, the budget and one token's advantage beside each other, for the shown batch.",
    idea="""
    Three things differ from GRPO's loss: the advantage is not divided by a standard deviation; there is no mean
    within a completion; the one divisor is a product of two numbers that no completion's length enters. The clip
    stays.
    """,
    outline="""
    ```python
    groups = rewards.view(..., ...)  # [P, G]
    advantages = ...  # [B, 1], centred only
    ratio = ...
    objective = torch.minimum(..., ...)
    return -(objective * mask).sum() / (...)
    ```
    """,
    right="Right, value and gradient. What would change if you doubled the budget, under SGD and under Adam?",
    gradient_of="logp",
)
