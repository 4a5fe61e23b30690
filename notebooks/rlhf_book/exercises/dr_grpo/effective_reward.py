"""Which reward GRPO's length average ascends."""

import torch
from torch import Generator, Tensor

from ..draws import integer, uniform
from ..exercise import Case, Exercise, Mistake


def my_effective_reward(
    probs: Tensor, rewards: Tensor, lengths: Tensor, group_size: int
) -> Tensor:
    """Probs, rewards, lengths [N] of all responses -> [N]: the reward that is ascended."""
    value = (probs * rewards).sum()  # J, the expected reward
    return (group_size - 1) / group_size * (rewards - value) / lengths


def _no_baseline(
    probs: Tensor, rewards: Tensor, lengths: Tensor, group_size: int
) -> Tensor:
    return (group_size - 1) / group_size * rewards / lengths


def _no_factor(
    probs: Tensor, rewards: Tensor, lengths: Tensor, group_size: int
) -> Tensor:
    return (rewards - (probs * rewards).sum()) / lengths


def _plain_mean(
    probs: Tensor, rewards: Tensor, lengths: Tensor, group_size: int
) -> Tensor:
    return (group_size - 1) / group_size * (rewards - rewards.mean()) / lengths


def _baseline_after(
    probs: Tensor, rewards: Tensor, lengths: Tensor, group_size: int
) -> Tensor:
    per_token = rewards / lengths
    return (group_size - 1) / group_size * (per_token - (probs * per_token).sum())


def _baseline_not_divided(
    probs: Tensor, rewards: Tensor, lengths: Tensor, group_size: int
) -> Tensor:
    return (group_size - 1) / group_size * (rewards / lengths - (probs * rewards).sum())


def _mean_length(
    probs: Tensor, rewards: Tensor, lengths: Tensor, group_size: int
) -> Tensor:
    return (
        (group_size - 1)
        / group_size
        * (rewards - (probs * rewards).sum())
        / (probs * lengths).sum()
    )


def _times_length(
    probs: Tensor, rewards: Tensor, lengths: Tensor, group_size: int
) -> Tensor:
    return (group_size - 1) / group_size * (rewards - (probs * rewards).sum()) * lengths


def _leave_one_out(
    probs: Tensor, rewards: Tensor, lengths: Tensor, group_size: int
) -> Tensor:
    return group_size / (group_size - 1) * (rewards - (probs * rewards).sum()) / lengths


def _weighted(
    probs: Tensor, rewards: Tensor, lengths: Tensor, group_size: int
) -> Tensor:
    return probs * my_effective_reward(probs, rewards, lengths, group_size)


def _draw(generator: Generator) -> Case:
    N = integer(generator, 2, 9)
    probs = uniform(generator, N) + 0.05
    rewards = (
        (uniform(generator, N) > 0.5).double()
        if integer(generator, 0, 2)
        else 3 * uniform(generator, N) - 1
    )
    lengths = torch.randint(1, 30, (N,), generator=generator).double()
    return Case(
        {
            "probs": probs / probs.sum(),
            "rewards": rewards,
            "lengths": lengths,
            "group_size": integer(generator, 2, 17),
        }
    )


def _case(
    probs: list[float], rewards: list[float], lengths: list[float], group_size: int
) -> Case:
    given = {"probs": probs, "rewards": rewards, "lengths": lengths}
    tensors = {name: torch.tensor(x, dtype=torch.float64) for name, x in given.items()}
    return Case({**tensors, "group_size": group_size})


EFFECTIVE_REWARD = Exercise(
    id="dr-grpo-effective-reward",
    title="what the length average rewards",
    concept="length-bias",
    minutes=15,
    difficulty="stretch",
    statement=r"""
    Take GRPO without its division by the std. With $R_i$ the rewards of a group and $\bar R$ their mean, its expected
    step at $\pi_\theta = \pi_\text{old}$ is a plain policy gradient, of *another* reward $\rho$, in which the expected
    reward stands as a constant:

    $$\mathbb E\Big[\frac1G \sum_i \frac{R_i - \bar R}{|o_i|} \nabla \log \pi(o_i)\Big]
    = \mathbb E\big[\rho(o)\, \nabla \log \pi(o)\big] .$$

    Write `my_effective_reward(probs, rewards, lengths, group_size)`. The first three are `[N]`, one entry for each
    response that the policy can give (the probabilities sum to 1), and so is the result, $\rho$. A constant added to
    $\rho$ would change no gradient; give the $\rho$ that is 0 for a response whose reward is exactly the expected one.
    """,
    solution=my_effective_reward,
    cases=(
        _case([0.25, 0.25, 0.5], [1.0, 0.0, 0.0], [2.0, 1.0, 4.0], 4),
        _case([0.5, 0.5], [1.0, 0.0], [3.0, 3.0], 2),
        _case([0.1, 0.2, 0.7], [0.0, 3.0, 1.0], [10.0, 1.0, 100.0], 8),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _no_baseline,
            "That is right without a baseline. Does subtracting one still cost nothing once each score is divided by "
            "a length?",
        ),
        Mistake(
            _no_factor,
            "Nearly: the group's mean contains the response's own reward. What does that do to the scale?",
        ),
        Mistake(
            _plain_mean,
            "You average the rewards over the list. Some responses are likelier than others.",
        ),
        Mistake(
            _baseline_after,
            "You divide by the length first and centre afterwards. GRPO centres the rewards and divides what is left.",
        ),
        Mistake(
            _baseline_not_divided, "The baseline is divided by the length as well."
        ),
        Mistake(
            _mean_length,
            "You divide every response by the expected length. GRPO takes each one's own.",
        ),
        Mistake(
            _times_length,
            "You multiply by the length. The length stands in the denominator.",
        ),
        Mistake(
            _leave_one_out,
            "The factor is upside down. A mean that contains one's own reward makes the score smaller, not larger.",
        ),
        Mistake(
            _weighted,
            "The probability is already in the expectation. Leave it out of the reward.",
        ),
    ),
    where="Take answer 1 of the group, and split the mean into its own reward and those of the others.",
    right="Right. For whom is this reward higher when wrong: the response that stops, or the one that goes on?",
)
