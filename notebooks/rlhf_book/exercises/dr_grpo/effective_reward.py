"""Which reward the length average steps along, with RLOO's baseline."""

import torch
from torch import Generator, Tensor

from ..draws import integer, uniform
from ..exercise import Case, Exercise, Mistake


def my_effective_reward(
    probs: Tensor, rewards: Tensor, lengths: Tensor, group_size: int
) -> Tensor:
    """Probs, rewards, lengths [N] of all completions -> [N]: rho."""
    value = (probs * rewards).sum()  # J, the expected reward
    return (rewards - value) / lengths


def _no_baseline(
    probs: Tensor, rewards: Tensor, lengths: Tensor, group_size: int
) -> Tensor:
    return rewards / lengths


def _groups_mean(
    probs: Tensor, rewards: Tensor, lengths: Tensor, group_size: int
) -> Tensor:
    return (group_size - 1) / group_size * (rewards - (probs * rewards).sum()) / lengths


def _plain_mean(
    probs: Tensor, rewards: Tensor, lengths: Tensor, group_size: int
) -> Tensor:
    return (rewards - rewards.mean()) / lengths


def _baseline_after(
    probs: Tensor, rewards: Tensor, lengths: Tensor, group_size: int
) -> Tensor:
    per_token = rewards / lengths
    return per_token - (probs * per_token).sum()


def _baseline_not_divided(
    probs: Tensor, rewards: Tensor, lengths: Tensor, group_size: int
) -> Tensor:
    return rewards / lengths - (probs * rewards).sum()


def _mean_length(
    probs: Tensor, rewards: Tensor, lengths: Tensor, group_size: int
) -> Tensor:
    return (rewards - (probs * rewards).sum()) / (probs * lengths).sum()


def _times_length(
    probs: Tensor, rewards: Tensor, lengths: Tensor, group_size: int
) -> Tensor:
    return (rewards - (probs * rewards).sum()) * lengths


def _corrected_twice(
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
    RLOO subtracts from each reward the mean of the *others* in its group, $b_i = \frac{1}{G-1} \sum_{j \ne i} R_j$.
    Take that baseline, no division by the std, and keep GRPO's division by the completion's own length. At
    $\pi_\theta = \pi_\text{old}$ the expected step is again a plain policy gradient, of a reward $\rho$ in which the
    expected reward stands as a constant:

    $$\mathbb E\Big[\frac1G \sum_i \frac{R_i - b_i}{|o_i|} \nabla \log \pi(o_i)\Big]
    = \mathbb E\big[\rho(o)\, \nabla \log \pi(o)\big] .$$

    Write `my_effective_reward(probs, rewards, lengths, group_size)`. The first three are `[N]`, one entry for each
    completion that the policy can give (the probabilities sum to 1), and so is the result, $\rho$. A constant added to
    $\rho$ would change no gradient; give the $\rho$ that is 0 for a completion whose reward is exactly the expected
    one. Before you write: is the length bias of this baseline the same as that of the group's mean?
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
            "That is right without a baseline. Does subtracting one still cost nothing once each gradient is divided by "
            "a length?",
        ),
        Mistake(
            _groups_mean,
            "That is for a mean which contains the completion's own reward. RLOO leaves it out.",
        ),
        Mistake(
            _plain_mean,
            "You average the rewards over the list. Some completions are likelier than others.",
        ),
        Mistake(
            _baseline_after,
            "You divide by the length first and centre afterwards. The rewards are centred, and what is left is divided.",
        ),
        Mistake(
            _baseline_not_divided, "The baseline is divided by the length as well."
        ),
        Mistake(
            _mean_length,
            "You divide every completion by the expected length. Each one's own is asked for.",
        ),
        Mistake(
            _times_length,
            "You multiply by the length. The length stands in the denominator.",
        ),
        Mistake(
            _corrected_twice,
            "The mean of the others is already without the completion's own reward: nothing is left to correct.",
        ),
        Mistake(
            _weighted,
            "The probability is already in the expectation. Leave it out of the reward.",
        ),
    ),
    where="Take completion 1 of the group. Its baseline is independent of it: what is the mean of the product?",
    idea=r"""
    All $G$ completions are alike, so look at one: $\mathbb E\big[\frac{R - b}{|o|} \nabla\log\pi(o)\big]$. The
    baseline is made of the others and independent of this completion: replace it by its mean. Which mean?
    """,
    outline="""
    ```python
    value = ...  # scalar, the mean of the baseline
    return ...  # [N], one weight for each completion: 0 where the reward is value
    ```
    """,
    right="Right. For whom is this reward higher when wrong: the completion that stops, or the one that goes on?",
)
