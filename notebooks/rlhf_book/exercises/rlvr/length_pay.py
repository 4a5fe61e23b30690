"""Whether length pays: the covariance of length and reward, within prompts."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake


def my_length_pay(lengths: Tensor, rewards: Tensor, group_size: int) -> float:
    """[B] lengths and rewards -> the mean covariance within a group."""
    L, R = (x.double().view(-1, group_size) for x in (lengths, rewards))
    L, R = L - L.mean(1, keepdim=True), R - R.mean(1, keepdim=True)
    return ((L * R).sum(1) / (group_size - 1)).mean().item()


def _pooled(lengths: Tensor, rewards: Tensor, group_size: int) -> float:
    return my_length_pay(lengths, rewards, len(lengths))


def _population(lengths: Tensor, rewards: Tensor, group_size: int) -> float:
    return my_length_pay(lengths, rewards, group_size) * (group_size - 1) / group_size


def _correlation(lengths: Tensor, rewards: Tensor, group_size: int) -> float:
    L, R = (x.double().view(-1, group_size) for x in (lengths, rewards))
    scale = (L.std(1) * R.std(1)).clamp(min=1e-12)
    covariance = torch.tensor(
        [my_length_pay(x, y, group_size) for x, y in zip(L, R, strict=True)]
    )
    return (covariance / scale).mean().item()


def _gap(lengths: Tensor, rewards: Tensor, group_size: int) -> float:
    right = rewards > rewards.double().mean()
    if not right.any() or right.all():
        return 0.0
    L = lengths.double()
    return (L[right].mean() - L[~right].mean()).item()


def _product(lengths: Tensor, rewards: Tensor, group_size: int) -> float:
    return (lengths.double() * rewards.double()).mean().item()


def _summed(lengths: Tensor, rewards: Tensor, group_size: int) -> float:
    return my_length_pay(lengths, rewards, group_size) * len(lengths) / group_size


def _of_means(lengths: Tensor, rewards: Tensor, group_size: int) -> float:
    L, R = (x.double().view(-1, group_size).mean(1) for x in (lengths, rewards))
    return my_length_pay(L, R, len(L)) if len(L) > 1 else 0.0


def _draw(generator: Generator) -> Case:
    groups, size = integer(generator, 2, 6), integer(generator, 2, 7)
    hard = torch.rand(groups, 1, generator=generator).expand(groups, size)
    lengths = 5 + (20 * hard) + torch.randint(0, 9, (groups, size), generator=generator)
    rewards = (torch.rand(groups, size, generator=generator) > hard).double()
    rewards[0, 0], rewards[0, 1] = 1.0, 0.0
    return _case(lengths.round().flatten().double(), rewards.flatten(), size)


def _case(lengths: Tensor, rewards: Tensor, size: int) -> Case:
    return Case({"lengths": lengths, "rewards": rewards, "group_size": size})


LENGTH_PAY = Exercise(
    id="rlvr-length-pay",
    title="does length pay?",
    concept="long-cot",
    minutes=10,
    difficulty="core",
    statement=r"""
    Before a run you want to know whether completions will begin to grow. "What length pays, measured" says that it is the covariance of length and
    reward that decides, *for each prompt by itself*. Estimate its mean over prompts without bias from one batch:
    `my_length_pay(lengths, rewards, group_size)` with `lengths` and `rewards` `[B]`, the completions of a prompt next to each other.

    Predict first: hard prompts get long completions, and most of these are wrong. Within every prompt the longer completions are the right
    ones. Can the covariance over the whole batch be negative all the same? And which way will the length go?
    """,
    solution=my_length_pay,
    cases=(
        _case(
            torch.tensor([4.0, 8, 5, 9, 20, 24, 21, 30]),
            torch.tensor([1.0, 1, 0, 1, 0, 0, 0, 1]),
            4,
        ),
        _case(
            torch.tensor([3.0, 6, 9, 3, 9, 6]), torch.tensor([0.0, 0, 1, 1, 0, 1]), 3
        ),
        _case(torch.tensor([3.0, 7, 7, 9]), torch.tensor([0.0, 1, 1, 1]), 2),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _pooled,
            "You take all prompts together: then hard prompts, long and wrong, speak about length.",
        ),
        Mistake(_population, "Dividing by the group size is biased towards 0."),
        Mistake(
            _correlation,
            "A correlation has no tokens in it: leave out the division by spreads.",
        ),
        Mistake(
            _gap,
            "The gap between right and wrong ones of the whole batch compares prompts with one another.",
        ),
        Mistake(
            _product, "A product of means is still in it: centre within the group."
        ),
        Mistake(_summed, "The mean over prompts, not the sum."),
        Mistake(
            _of_means,
            "You compare prompts with each other. Compare completions of one prompt.",
        ),
    ),
    where="Centre both within each group. How many numbers are free in a centred group?",
    idea="""
    Within a group subtract the mean of both, multiply, and add up. A centred group of $G$ numbers has $G - 1$ free
    ones: that is the divisor of an unbiased covariance. Then average over prompts.
    """,
    outline="""
    ```python
    L, R = ...  # [P, G] each
    L, R = ..., ...  # centred in each row
    return ((...).sum(1) / ...).mean().item()
    ```
    """,
    right="Right. It is also where a length that nobody asked for can be foreseen, before the first step.",
)
