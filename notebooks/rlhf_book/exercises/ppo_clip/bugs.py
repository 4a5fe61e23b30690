"""Find the bug: three things that go wrong around PPO's clip, in code that trains all the same."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..bug import Bug

# ── the clip of a bad token ────────────────────────────────────────────────────────────────────────────────────


def suspect_surrogate(ratio: Tensor, advantages: Tensor, eps: float = 0.2) -> Tensor:
    """PPO's clipped objective of each token, to be maximised: ratio, advantages [N]."""
    free = ratio * advantages
    clipped = ratio.clamp(1 - eps, 1 + eps) * advantages
    return torch.where(
        advantages >= 0, torch.minimum(free, clipped), torch.maximum(free, clipped)
    )


def twenty_steps_on_a_bad_token(surrogate: Callable[..., Tensor]) -> None:
    """One bad action of two, old probability 1/2; twenty steps on one sample."""
    logits = torch.zeros(2, requires_grad=True)
    old = torch.tensor(0.5).log()
    for step in range(21):
        ratio = (logits.log_softmax(-1)[:1] - old).exp()
        if step % 5 == 0:
            r = ratio.item()
            print(f"after {step:2d} steps the ratio of the bad action is {r:.2f}")
        (gradient,) = torch.autograd.grad(
            surrogate(ratio, torch.tensor([-1.0])).sum(), logits
        )
        logits = (logits + 0.15 * gradient).detach().requires_grad_()


def never_above_the_unclipped(surrogate: Callable[..., Tensor]) -> None:
    """The clipped objective is a pessimist: at no ratio does it promise more than ratio times advantage."""
    ratio = torch.linspace(0.1, 3, 30)
    for advantage in (1.0, -1.0):
        advantages = torch.full_like(ratio, advantage)
        worst = (surrogate(ratio, advantages) - ratio * advantages).max().item()
        assert worst < 1e-6, (
            f"with an advantage of {advantage:+.0f} it promises up to {worst:.2f} too much"
        )


def mended_surrogate(ratio: Tensor, advantages: Tensor, eps: float = 0.2) -> Tensor:
    """PPO's clipped objective of each token, to be maximised: ratio, advantages [N]."""
    free = ratio * advantages
    clipped = ratio.clamp(1 - eps, 1 + eps) * advantages
    return torch.minimum(free, clipped)


MAXIMUM_FOR_BAD = Bug(
    id="maximum-for-bad",
    title="a bad token without a floor",
    concept="clip-table",
    minutes=5,
    statement="""
    "For a negative advantage everything turns round", somebody reasoned, and wrote it so. Good tokens behave. The code
    takes twenty steps on one sample of a *bad* action. Where should its ratio come to rest, and where does it go? Then
    ask what this code does with a bad token that has become likelier.
    """,
    wrong=suspect_surrogate,
    symptom=twenty_steps_on_a_bad_token,
    reveals=never_above_the_unclipped,
    mended=mended_surrogate,
    idea="""
    Make the table: ratios 0.5, 1 and 1.5 by advantages 1 and −1, and in each cell the free and the clipped product.
    In which cell does the code promise more than the free one?
    """,
    outline="""
    The two products already carry the advantage's sign. One function of the two of them is right in all six cells:

    ```python
    return ...  # of free and clipped, whatever the sign
    ```
    """,
    moral="""
    The minimum is right for both signs. Multiplying by a negative advantage has already turned the order of the two
    products round; turning it once more undoes that. With the maximum a bad token is pushed down without end, and one
    that has become *likelier* than the clip range allows gets no gradient at all. The habit: test the clip with a table, three ratios by two signs.
    """,
)


# ── how much is clipped ────────────────────────────────────────────────────────────────────────────────────────


def suspect_fraction(ratio: Tensor, advantages: Tensor, eps: float = 0.2) -> Tensor:
    """The share of tokens that the clip has silenced: ratio, advantages [N]."""
    outside = (ratio - 1).abs() > eps
    return outside.float().mean()


def fractions_of_three_batches(fraction: Callable[..., Tensor]) -> None:
    """Four tokens above the clip range, four below, two inside; three advantages."""
    ratio = torch.tensor([1.5] * 4 + [0.5] * 4 + [1.0] * 2)
    moved = torch.sign(ratio - 1)
    for name, pushes in (
        ("each moved the way it was pushed", torch.where(moved == 0, 1.0, moved)),
        ("each moved the wrong way        ", torch.where(moved == 0, 1.0, -moved)),
        ("nobody was pushed, A = 0        ", torch.zeros(10)),
    ):
        print(f"{name}: logged as clipped {fraction(ratio, pushes).item():.0%}")


def counts_the_silent(fraction: Callable[..., Tensor]) -> None:
    """Of the tokens with an advantage, the share for which autograd finds no gradient."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(100):
        ratio = (0.4 * torch.randn(50, generator=generator)).exp().requires_grad_()
        advantages = torch.randn(50, generator=generator) * (
            torch.rand(50, generator=generator) > 0.3
        )
        objective = torch.minimum(
            ratio * advantages, ratio.clamp(0.8, 1.2) * advantages
        )
        (slope,) = torch.autograd.grad(objective.sum(), ratio)
        pushed = advantages != 0
        silent = (slope[pushed] == 0).float().mean().item()
        said = fraction(ratio.detach(), advantages).item()
        assert abs(said - silent) < 1e-6, (
            f"it says {said:.0%}, and {silent:.0%} have no gradient"
        )


def mended_fraction(ratio: Tensor, advantages: Tensor, eps: float = 0.2) -> Tensor:
    """The share of tokens that the clip has silenced: ratio, advantages [N]."""
    silent = ((advantages > 0) & (ratio > 1 + eps)) | (
        (advantages < 0) & (ratio < 1 - eps)
    )
    return silent.sum() / (advantages != 0).sum().clamp(min=1)


CLIP_FRACTION = Bug(
    id="clip-fraction",
    title="a number that frightens",
    concept="clip-table",
    minutes=5,
    statement="""
    The dashboard says that most tokens are clipped, somebody halves the learning rate, and nothing gets better. The
    loss is right, only this logged number is not. The code logs three batches with the same ratios. In which of them
    does the clip silence anybody?
    """,
    wrong=suspect_fraction,
    symptom=fractions_of_three_batches,
    reveals=counts_the_silent,
    mended=mended_fraction,
    idea="""
    Take a token of ratio 1.5 with a *negative* advantage. Is it outside the range? Does it still have a gradient?
    And a token of advantage 0?
    """,
    outline="""
    ```python
    silent = ((...) & (ratio > 1 + eps)) | ((...) & (ratio < 1 - eps))
    return silent.sum() / ...  # of those that had something to lose
    ```
    """,
    moral="""
    Outside the clip range is not clipped. The code counts all four cases outside, and two of them are open: tokens that moved
    the wrong way keep their gradient. Tokens without an advantage have none to lose. The library asks the gate itself,
    by autograd, so its number is right for every gate. The habit: define a logged number by what it should mean (no
    gradient), and test it against that. The share *outside the clip range* is worth logging too, under its own name.
    """,
)


# ── whose log-probs are the old ones ───────────────────────────────────────────────────────────────────────────


def suspect_epochs(
    logits: Tensor, actions: Tensor, advantages: Tensor, steps: int, lr: float = 1.0
) -> Tensor:
    """Several steps on one sample, PPO's clip at .2: logits [K], the others [N]."""
    for _ in range(steps):
        logits = logits.detach().requires_grad_()
        logp = logits.log_softmax(-1)[actions]
        old_logp = logp.detach()
        ratio = (logp - old_logp).exp()
        objective = torch.minimum(
            ratio * advantages, ratio.clamp(0.8, 1.2) * advantages
        ).mean()
        (gradient,) = torch.autograd.grad(objective, logits)
        logits = logits + lr * gradient
    return logits.detach()


def eight_samples_many_steps(epochs: Callable[..., Tensor]) -> None:
    """Eight samples of a uniform policy over four actions; action 0 was good."""
    actions = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])
    advantages = torch.where(actions == 0, 3.0, -1.0)
    for steps in (1, 4, 16, 64):
        pi = epochs(torch.zeros(4), actions, advantages, steps, lr=0.1).softmax(-1)
        good = pi[0].item()
        print(
            f"after {steps:2d} steps: P(good) {good:.2f}, "
            f"{good / 0.25:.2f} times what it was"
        )


def stops_near_the_band(epochs: Callable[..., Tensor]) -> None:
    """One good action, small steps, no momentum: the clip has to stop it one step beyond the edge at the latest."""
    pi = epochs(
        torch.zeros(2), torch.tensor([0]), torch.tensor([1.0]), 200, lr=0.05
    ).softmax(-1)
    ratio = pi[0].item() / 0.5
    assert ratio < 1.25, (
        f"after 200 small steps the ratio to the policy that sampled is {ratio:.2f}"
    )


def mended_epochs(
    logits: Tensor, actions: Tensor, advantages: Tensor, steps: int, lr: float = 1.0
) -> Tensor:
    """Several steps on one sample, PPO's clip at .2: logits [K], the others [N]."""
    old_logp = logits.log_softmax(-1)[
        actions
    ].detach()  # of the policy that sampled: stored once, with the sample
    for _ in range(steps):
        logits = logits.detach().requires_grad_()
        logp = logits.log_softmax(-1)[actions]
        ratio = (logp - old_logp).exp()
        objective = torch.minimum(
            ratio * advantages, ratio.clamp(0.8, 1.2) * advantages
        ).mean()
        (gradient,) = torch.autograd.grad(objective, logits)
        logits = logits + lr * gradient
    return logits.detach()


FORGETFUL_CLIP = Bug(
    id="forgetful-clip",
    title="a clip fraction of zero",
    concept="ppo-on-policy",
    minutes=5,
    statement="""
    The clip fraction is 0 in every step of every epoch. "So our steps are small", says the report. The code takes more
    and more steps on the same eight samples. The clip is there, and its formula is right. What does it compare with?
    """,
    wrong=suspect_epochs,
    symptom=eight_samples_many_steps,
    reveals=stops_near_the_band,
    mended=mended_epochs,
    idea="""
    Print the ratio at the beginning of the second step. It should have left 1. From which logits is `old_logp` made
    there?
    """,
    outline="""
    ```python
    old_logp = ...  # where does this line stand: before the loop or in it?
    for _ in range(steps):
        ...
    ```
    """,
    moral="""
    The old log-probs are computed again in every step, from the policy of that step. So every ratio is 1, nothing is
    ever clipped, and the same samples are used as if they were fresh. The old log-probs belong to the *samples*: they
    are stored when the samples are drawn. The habit: log the largest and the smallest ratio. Exactly 1 in the first
    step of a rollout is right; exactly 1 in the last of several updates is a bug. (The mended code stops. It stops beyond 1.2 here,
    because the bad answers' push lifts the good one too: the clip removes a push, it is no wall.)
    """,
)

BUGS = (MAXIMUM_FOR_BAD, CLIP_FRACTION, FORGETFUL_CLIP)
