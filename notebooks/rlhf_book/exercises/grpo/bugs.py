"""Find the bug: three implementations of GRPO's parts, each as it was once published."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..bug import Bug

# ── the length of a completion ───────────────────────────────────────────────────────────────────────────────────


def suspect_loss(
    logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor
) -> Tensor:
    """GRPO's clipped loss: logp, old_logp, mask [B, T], advantages [B]."""
    ratio = torch.exp(logp - old_logp)
    free = ratio * advantages[:, None]
    clipped = ratio.clamp(0.8, 1.2) * advantages[:, None]
    per_completion = (torch.minimum(free, clipped) * mask).mean(dim=1)  # [B]
    return -per_completion.mean()


def weight_of_a_token(loss: Callable[..., Tensor]) -> None:
    """A completion of four tokens, in batches whose longest one has 4 to 64."""
    for width in (4, 8, 16, 32, 64):
        logp = torch.full((2, width), -1.0, requires_grad=True)
        mask = (torch.arange(width) < torch.tensor([[4], [width]])).float()
        loss(logp, logp.detach(), torch.tensor([1.0, -1.0]), mask).backward()
        assert logp.grad is not None
        weight = -logp.grad[0, 0].item()
        print(f"longest completion {width:2d}: its first token weighs {weight:.5f}")


def padding_never_matters(loss: Callable[..., Tensor]) -> None:
    """A column of padding is added: no loss may change."""
    logp, old_logp = torch.full((2, 3), -1.0), torch.full((2, 3), -1.1)
    mask, advantages = (
        torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]]),
        torch.tensor([1.0, -0.5]),
    )
    tight = loss(logp, old_logp, advantages, mask).item()
    logp, old_logp, mask = (
        torch.nn.functional.pad(x, (0, 1)) for x in (logp, old_logp, mask)
    )
    padded = loss(logp, old_logp, advantages, mask).item()
    assert abs(tight - padded) < 1e-6, (
        f"one column of padding moves the loss from {tight:.4f} to {padded:.4f}"
    )


def mended_loss(
    logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor
) -> Tensor:
    """GRPO's clipped loss: logp, old_logp, mask [B, T], advantages [B]."""
    ratio = torch.exp(logp - old_logp)
    free = ratio * advantages[:, None]
    clipped = ratio.clamp(0.8, 1.2) * advantages[:, None]
    per_completion = (torch.minimum(free, clipped) * mask).sum(dim=1) / mask.sum(
        dim=1
    )  # [B]
    return -per_completion.mean()


PADDED_MEAN = Bug(
    id="padded-mean",
    title="a completion that fades",
    concept="grpo-objective",
    minutes=5,
    statement="""
    This loss multiplies by the mask and averages. It trains, and nobody complains, until somebody sorts the batches by
    length and the learning speed changes. The cell prints how much the first token of one and the same completion counts,
    in batches that differ only in the length of *another* completion. What should the numbers do, and which line is it?
    """,
    wrong=suspect_loss,
    symptom=weight_of_a_token,
    reveals=padding_never_matters,
    mended=mended_loss,
    idea="""
    Compute one completion of two tokens in a batch that is four wide. By which number is the sum of its tokens
    divided, and by which should it be?
    """,
    outline="""
    ```python
    per_completion = (... * mask).sum(dim=1) / ...  # [B], a number of its own for each row
    ```
    """,
    moral="""
    `mean(dim=1)` divides by the padded width, which belongs to the longest completion of the batch and to nobody else.
    GRPO divides by the completion's own length, the sum of its row of the mask. The habit: add a column of padding to
    every batch of your tests. Nothing may change.
    """,
)


# ── the direction of the penalty ─────────────────────────────────────────────────────────────────────────────────


def suspect_penalty(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """The estimator k3 of KL(pi || ref), from samples of pi."""
    log_ratio = logp - ref_logp
    return torch.exp(log_ratio) - 1 - log_ratio


def far_from_the_reference(penalty: Callable[..., Tensor]) -> None:
    """The charge for a token that the policy likes and the reference does not."""
    for distance in (0.1, 1.0, 5.0, 10.0):
        charge = penalty(torch.tensor(-0.1), torch.tensor(-0.1 - distance)).item()
        print(f"log-ratio {distance:4.1f}: the penalty charges {charge:.3f}")


def expectation_is_the_kl(penalty: Callable[..., Tensor]) -> None:
    """Over a small vocabulary the expectation under pi has to be the KL itself."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 5, generator=generator, dtype=torch.float64)
    logp, ref_logp = logits.log_softmax(-1)
    exact = (logp.exp() * (logp - ref_logp)).sum().item()
    expected = (logp.exp() * penalty(logp, ref_logp)).sum().item()
    assert abs(expected - exact) < 1e-9, (
        f"its expectation is {expected:.4f}, the KL is {exact:.4f}"
    )


def mended_penalty(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """The estimator k3 of KL(pi || ref), from samples of pi."""
    log_ratio = ref_logp - logp
    return torch.exp(log_ratio) - 1 - log_ratio


K3_UPSIDE_DOWN = Bug(
    id="k3-upside-down",
    title="a KL penalty that explodes",
    concept="kl-direction",
    minutes=5,
    statement="""
    The penalty is never negative, it is zero where the two policies agree, and the curves look fine at
    first. Then one token spikes, and with it the loss. Both properties just named hold for this code. Which third one,
    the one that the penalty is named after, does not?
    """,
    wrong=suspect_penalty,
    symptom=far_from_the_reference,
    reveals=expectation_is_the_kl,
    mended=mended_penalty,
    idea=r"""
    Take two tokens, $\pi = (0.9, 0.1)$ and the reference $(0.5, 0.5)$, and compute the mean of the penalty under
    $\pi$ and the exact KL. Then exchange numerator and denominator.
    """,
    outline="""
    ```python
    log_ratio = ...  # the logarithm of r: the reference stands on top
    return ... - 1 - ...
    ```
    """,
    moral="""
    The ratio stands upside down. k3 is $r - 1 - \\log r$ with $r = \\pi_{\\mathrm{ref}} / \\pi$; with $\\pi /
    \\pi_{\\mathrm{ref}}$ it estimates $\\chi^2(\\pi \\Vert \\pi_{\\mathrm{ref}}) - \\mathrm{KL}$ instead, on the same
    samples. Close to the reference both are half the squared log-ratio, so a test near zero cannot tell them apart. The
    habit: hold an estimator to the exact KL of a small categorical, with the two policies far apart.
    """,
)


# ── a group of equals ────────────────────────────────────────────────────────────────────────────────────────────


def suspect_advantage(rewards: Tensor, group_size: int) -> Tensor:
    """The group's z-score: [B] rewards -> [B] advantages."""
    groups = rewards.view(-1, group_size)
    scores = (groups - groups.mean(-1, keepdim=True)) / (
        groups.std(-1, keepdim=True) + 1e-8
    )
    return scores.flatten()


def groups_of_equals(advantage: Callable[..., Tensor]) -> None:
    """Groups in which everybody got the same reward."""
    for reward, group_size in ((1.0, 8), (0.5, 8), (0.7, 8), (1.1, 12)):
        scores = advantage(torch.full((group_size,), reward), group_size)
        first = scores[0].item()
        print(f"{group_size:2d} times {reward}: the first advantage is {first:.3f}")


def equals_get_nothing(advantage: Callable[..., Tensor]) -> None:
    """Equal rewards have advantage 0, for every reward and every group size."""
    for group_size in range(2, 17):
        for reward in torch.linspace(0, 2, 41).tolist():
            largest = (
                advantage(torch.full((group_size,), reward), group_size)
                .abs()
                .max()
                .item()
            )
            assert largest == 0, (
                f"{group_size} rewards of {reward:.2f} have advantage {largest:.3f}"
            )


def mended_advantage(rewards: Tensor, group_size: int) -> Tensor:
    """The group's z-score: [B] rewards -> [B] advantages."""
    groups = rewards.view(-1, group_size)
    scores = (groups - groups.mean(-1, keepdim=True)) / (
        groups.std(-1, keepdim=True) + 1e-4
    )
    constant = groups.amax(-1, keepdim=True) == groups.amin(-1, keepdim=True)
    return scores.masked_fill(constant, 0.0).flatten()


TINY_EPSILON = Bug(
    id="tiny-epsilon",
    title="a signal from nowhere",
    concept="zero-std-groups",
    minutes=5,
    statement="""
    With rewards of 0 and 1 this code is fine. Then a length bonus makes the rewards fractional, and groups in which all
    completions got the *same* reward begin to push the policy, all of the group in one direction. The formula is right.
    What is not?
    """,
    wrong=suspect_advantage,
    symptom=groups_of_equals,
    reveals=equals_get_nothing,
    mended=mended_advantage,
    idea="""
    Print the centred rewards of eight times 0.7 in single precision, and their standard deviation. How large is the
    quotient if epsilon is smaller than both?
    """,
    outline="""
    A larger epsilon is half of it. The other half asks the rewards themselves:

    ```python
    constant = ... == ...  # [P, 1], exact: no rounding is involved
    return scores.masked_fill(...).flatten()
    ```
    """,
    moral="""
    In single precision the mean of eight times 0.7 is not 0.7. The difference is one unit in the last place, the
    standard deviation is as small, and an epsilon of 1e-8 lets their quotient through. A larger epsilon makes the error
    small; asking the rewards whether they agree makes it zero. The habit: test with numbers that binary fractions
    cannot hold, not with 0 and 1.
    """,
)

BUGS = (PADDED_MEAN, K3_UPSIDE_DOWN, TINY_EPSILON)
