"""Find the bug: two losses for REINFORCE that run, fall and do not learn."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..bug import Bug

# ── a loss in which every completion gets the same weight ────────────────────────────────────────────────────────


def suspect_reinforce(logp: Tensor, mask: Tensor, rewards: Tensor) -> Tensor:
    """REINFORCE: logp and mask [B, T], rewards [B] or [B, 1] -> the loss."""
    of_completion = (logp * mask).sum(dim=-1)  # [B]
    advantages = rewards - rewards.mean()
    return -(advantages * of_completion).mean()


def push_on_each_completion(loss: Callable[..., Tensor]) -> None:
    """Four completions, the second one is right; rewards as a model gives them."""
    logp = torch.full((4, 3), -1.0, requires_grad=True)
    rewards = torch.tensor([[0.0], [1.0], [0.0], [0.0]])  # [B, 1]
    loss(logp, torch.ones(4, 3), rewards).backward()
    assert logp.grad is not None
    for i, push in enumerate((0.0 - logp.grad[:, 0]).tolist()):
        print(f"completion {i + 1}, reward {rewards[i].item():.0f}: push {push:+.4f}")


def only_the_right_one_is_pushed_up(loss: Callable[..., Tensor]) -> None:
    """Whether rewards come as [B] or as [B, 1], the loss has to be the same, to the gradient."""
    generator = torch.Generator().manual_seed(0)
    old = -torch.rand(4, 3, generator=generator) - 0.1
    rewards = torch.tensor([0.0, 1.0, 0.0, 0.0])
    found = []
    for shape in ((4,), (4, 1)):
        logp = old.clone().requires_grad_()
        loss(logp, torch.ones(4, 3), rewards.view(shape)).backward()
        assert logp.grad is not None
        found.append(logp.grad)
    gap = (found[0] - found[1]).abs().max().item()
    assert gap < 1e-6, f"with [B, 1] the gradient differs by {gap:.4f}"


def mended_reinforce(logp: Tensor, mask: Tensor, rewards: Tensor) -> Tensor:
    """REINFORCE: logp and mask [B, T], rewards [B] or [B, 1] -> the loss."""
    of_completion = (logp * mask).sum(dim=-1)  # [B]
    rewards = rewards.view_as(of_completion)
    advantages = rewards - rewards.mean()
    return -(advantages * of_completion).mean()


BROADCAST = Bug(
    id="pg-broadcast",
    title="a policy that never moves",
    concept="policy-gradient",
    minutes=5,
    statement="""
    The loss runs, no warning appears, and the accuracy stays where it was. The block prints the push that the first token of each
    completion gets. One of four completions is right. What should stand there, and which line is it?
    """,
    wrong=suspect_reinforce,
    symptom=push_on_each_completion,
    reveals=only_the_right_one_is_pushed_up,
    mended=mended_reinforce,
    idea="""
    Print the shape of every product in the code, once with rewards `[B]` and once with rewards `[B, 1]`. Which
    shape has `advantages * of_completion`?
    """,
    outline="""
    Before anything is multiplied, the rewards need one known shape, that of the completions' log-probs:

    ```python
    rewards = ...  # whatever came in, [B] now
    ```
    """,
    moral="""
    The reward model returns `[B, 1]`, the sums of log-probs are `[B]`. Their product is `[B, B]`: every reward meets every
    completion. Its mean is the mean advantage times the mean log-prob, and the mean advantage is zero. Without the
    baseline it is worse: all completions are pushed by the mean reward, right or wrong. The habit: write the shape
    behind every product, and look at the gradient of a batch of four.
    """,
)


# ── a learnt baseline ────────────────────────────────────────────────────────────────────────────────────────────


def suspect_loss_with_baseline(logp: Tensor, values: Tensor, rewards: Tensor) -> Tensor:
    """REINFORCE with a learnt baseline: all [B] -> one loss for both."""
    advantages = rewards - values
    of_policy = -(advantages * logp).mean()
    of_baseline = 0.5 * ((values - rewards) ** 2).mean()
    return of_policy + of_baseline


def learn_a_constant(loss: Callable[..., Tensor]) -> None:
    """One number, to become the mean reward; the policy stands still."""
    logp = torch.tensor([-4.0, -3.0, -5.0, -4.0])
    rewards = torch.tensor([1.0, 0.0, 1.0, 1.0])
    value = torch.zeros((), requires_grad=True)
    for step in range(1, 201):
        (slope,) = torch.autograd.grad(loss(logp, value.expand(4), rewards), value)
        value = (value - 0.1 * slope).detach().requires_grad_()
        if step in (1, 10, 50, 200):
            print(f"step {step:3d}: baseline {value.item():+.2f}, mean reward 0.75")


def the_policys_part_does_not_teach_the_baseline(loss: Callable[..., Tensor]) -> None:
    """What the baseline is taught must not depend on the log-probs of the policy."""
    rewards, slopes = torch.tensor([1.0, 0.0]), []
    for level in (-1.0, -9.0):
        values = torch.tensor([0.2, 0.6], requires_grad=True)
        logp = torch.full((2,), level, requires_grad=True)
        loss(logp, values, rewards).backward()
        assert values.grad is not None
        slopes.append(values.grad)
    gap = (slopes[0] - slopes[1]).abs().max().item()
    assert gap < 1e-6, f"less likely completions change its gradient by {gap:.4f}"


def mended_loss_with_baseline(logp: Tensor, values: Tensor, rewards: Tensor) -> Tensor:
    """REINFORCE with a learnt baseline: all [B] -> one loss for both."""
    advantages = (rewards - values).detach()
    of_policy = -(advantages * logp).mean()
    of_baseline = 0.5 * ((values - rewards) ** 2).mean()
    return of_policy + of_baseline


LEAKING_BASELINE = Bug(
    id="pg-leaking-baseline",
    title="a baseline that runs away",
    concept="policy-gradient",
    minutes=8,
    statement="""
    The baseline is learnt beside the policy, from the squared error to the reward. It should become the mean reward. The
    block trains it alone, with the policy standing still. Where does it end, and what pulls it there?
    """,
    wrong=suspect_loss_with_baseline,
    symptom=learn_a_constant,
    reveals=the_policys_part_does_not_teach_the_baseline,
    mended=mended_loss_with_baseline,
    idea="""
    Take the derivative of the policy's part of the loss in `values`. It should be 0. What is it, and through which
    factor does it come?
    """,
    outline="""
    The advantage weighs the log-prob and is a number. One operation makes a number of a tensor:

    ```python
    advantages = ...  # the same difference, as a number
    ```

    The part that teaches the baseline keeps its gradient.
    """,
    moral="""
    The advantage is a number that weighs the score; it has no gradient of its own. Here it has one: the derivative of
    $-(R - V) \\log \\pi$ in $V$ is $\\log \\pi$, which is negative, so gradient descent drives $V$ up without regard to the reward, by
    the mean of $-\\log \\pi$. The policy's gradient is still unbiased, with a useless baseline. The habit: everything that weighs a
    log-prob is made under `no_grad` or detached.
    """,
)

BUGS = (BROADCAST, LEAKING_BASELINE)
