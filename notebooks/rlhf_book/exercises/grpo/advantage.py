"""The z-score of a reward within its group."""

import torch
from torch import Generator, Tensor

from ..draws import books_batch, integer, uniform
from ..exercise import Case, Exercise, Mistake


def my_group_advantage(rewards: Tensor, group_size: int, eps: float = 1e-4) -> Tensor:
    """[B] rewards, groups together -> [B] advantages, 0 in a constant group."""
    groups = rewards.view(-1, group_size)  # [P, G]
    centred = groups - groups.mean(-1, keepdim=True)
    scores = centred / (groups.std(-1, keepdim=True) + eps)
    constant = groups.amax(-1, keepdim=True) == groups.amin(-1, keepdim=True)  # [P, 1]
    return scores.masked_fill(constant, 0.0).flatten()  # [B]


def _scores(
    rewards: Tensor, group_size: int, eps: float = 1e-4, ddof: int = 1
) -> Tensor:
    groups = rewards.view(-1, group_size)
    return (
        (groups - groups.mean(-1, keepdim=True))
        / (groups.std(-1, keepdim=True, correction=ddof) + eps)
    ).flatten()


def _over_the_batch(rewards: Tensor, group_size: int, eps: float = 1e-4) -> Tensor:
    return (rewards - rewards.mean()) / (rewards.std() + eps)


def _centred_by_group_scaled_by_batch(
    rewards: Tensor, group_size: int, eps: float = 1e-4
) -> Tensor:
    groups = rewards.view(-1, group_size)
    return ((groups - groups.mean(-1, keepdim=True)) / (rewards.std() + eps)).flatten()


def _over_the_prompts(rewards: Tensor, group_size: int, eps: float = 1e-4) -> Tensor:
    groups = rewards.view(-1, group_size)
    return (
        (groups - groups.mean(0, keepdim=True)) / (groups.std(0, keepdim=True) + eps)
    ).flatten()


def _interleaved(rewards: Tensor, group_size: int, eps: float = 1e-4) -> Tensor:
    columns = rewards.view(group_size, -1)
    return (
        (columns - columns.mean(0, keepdim=True)) / (columns.std(0, keepdim=True) + eps)
    ).flatten()


def _population(rewards: Tensor, group_size: int, eps: float = 1e-4) -> Tensor:
    return _scores(rewards, group_size, eps, ddof=0)


def _eps_in_the_root(rewards: Tensor, group_size: int, eps: float = 1e-4) -> Tensor:
    groups = rewards.view(-1, group_size)
    return (
        (groups - groups.mean(-1, keepdim=True))
        / (groups.var(-1, keepdim=True) + eps).sqrt()
    ).flatten()


def _variance(rewards: Tensor, group_size: int, eps: float = 1e-4) -> Tensor:
    groups = rewards.view(-1, group_size)
    return (
        (groups - groups.mean(-1, keepdim=True)) / (groups.var(-1, keepdim=True) + eps)
    ).flatten()


def _no_eps(rewards: Tensor, group_size: int, eps: float = 1e-4) -> Tensor:
    return _scores(rewards, group_size, 0.0)


def _another_eps(rewards: Tensor, group_size: int, eps: float = 1e-4) -> Tensor:
    return _scores(rewards, group_size, 1e-8)


def _default_eps(rewards: Tensor, group_size: int, eps: float = 1e-4) -> Tensor:
    return my_group_advantage(rewards, group_size)


def _only_centred(rewards: Tensor, group_size: int, eps: float = 1e-4) -> Tensor:
    groups = rewards.view(-1, group_size)
    return (groups - groups.mean(-1, keepdim=True)).flatten()


def _one_group_a_row(rewards: Tensor, group_size: int, eps: float = 1e-4) -> Tensor:
    return _scores(rewards, group_size, eps).view(-1, group_size)


def _wrong_sign(rewards: Tensor, group_size: int, eps: float = 1e-4) -> Tensor:
    return -_scores(rewards, group_size, eps)


def _draw_rewards(generator: Generator) -> Case:
    prompts, group_size = integer(generator, 1, 5), integer(generator, 2, 17)
    rewards = uniform(generator, prompts * group_size)
    eps = (1e-4, 1e-2, 1.0)[integer(generator, 0, 3)]
    kind = integer(generator, 0, 4)
    if kind == 0:  # right or wrong
        rewards = (rewards < 0.5).double()
    elif kind == 1:  # all close together, far from 0
        rewards = 3 + 1e-3 * rewards
    elif kind == 2:  # every group constant
        constant = uniform(generator, prompts).repeat_interleave(group_size).float()
        return Case(
            {"rewards": constant, "group_size": group_size, "eps": eps}, exact=True
        )
    return Case({"rewards": rewards, "group_size": group_size, "eps": eps})


_GROUP = {"group_size": 4, "eps": 1e-4}
ADVANTAGE = Exercise(
    id="grpo-advantage",
    title="the group's advantage",
    concept="group-advantage",
    minutes=10,
    difficulty="warm-up",
    statement=r"""
    Write `my_group_advantage`. It takes the rewards of a batch, `[B]`, in which the `group_size` completions of one
    prompt stand together, and returns one advantage a completion, `[B]`:

    $$A_i = \frac{R_i - \mathrm{mean}(R)}{\mathrm{std}(R) + \epsilon}$$

    with the mean and the *sample* standard deviation (divide by $G-1$) of the completion's own group; $\epsilon$ is the
    argument `eps`. A group whose rewards are all equal has advantage exactly 0, in single precision too.
    """,
    solution=my_group_advantage,
    cases=(
        Case({"rewards": books_batch()["rewards"], **_GROUP}),
        Case(
            {
                "rewards": torch.tensor([0.0, 1.0, 5.0, 2.0, 4.0, 0.5]),
                "group_size": 3,
                "eps": 1e-4,
            }
        ),
        Case(
            {
                "rewards": torch.tensor([0.0, 1.0, 2.0, 4.0, 7.0, 9.0]),
                "group_size": 2,
                "eps": 1e-4,
            }
        ),
        Case(
            {
                "rewards": torch.tensor([0.0, 1.0, 2.0, 4.0]),
                "group_size": 2,
                "eps": 1e-4,
            }
        ),
        # A spread as small as epsilon shows where epsilon stands.
        Case(
            {
                "rewards": torch.tensor(
                    [0.5, 0.5002, 0.5001, 0.5], dtype=torch.float64
                ),
                **_GROUP,
            }
        ),
        Case(
            {
                "rewards": torch.tensor([0.0, 0.0, 0.0, 1.0, 0.0, 0.5]),
                "group_size": 3,
                "eps": 0.5,
            }
        ),
        # Groups whose mean does not round to the reward itself.
        Case(
            {"rewards": torch.full((12,), 1.1), "group_size": 12, "eps": 1e-4},
            exact=True,
        ),
        Case(
            {"rewards": torch.full((7,), 0.7), "group_size": 7, "eps": 1e-4}, exact=True
        ),
    ),
    draw=_draw_rewards,
    mistakes=(
        Mistake(
            _over_the_batch,
            "You compare each completion with the whole batch. Its rivals are the other completions of the same prompt: "
            "think of the rewards as a table with one row a prompt.",
        ),
        Mistake(
            _centred_by_group_scaled_by_batch,
            "The mean is the group's, but the standard deviation is that of the whole batch.",
        ),
        Mistake(
            _over_the_prompts,
            "You average over the wrong axis: the first completion of one prompt is compared with the first completion of "
            "the next. Look at which axis of your table runs over the completions.",
        ),
        Mistake(
            _interleaved,
            "Your table puts completions of different prompts into one group: in the batch the completions of a prompt "
            "stand next to each other.",
        ),
        Mistake(
            _population,
            "The scale is off by sqrt(G/(G-1)): this is the population's standard deviation (ddof 0). "
            "Read again which one the exercise asks for.",
        ),
        Mistake(
            _eps_in_the_root,
            "Epsilon is added to the variance, under the root. On a group whose rewards nearly agree this shrinks the "
            "advantages far more than the formula does.",
        ),
        Mistake(
            _variance,
            "You divide by the variance. Check the units: an advantage should have none.",
        ),
        Mistake(
            _no_eps,
            "There is no epsilon in the denominator: where all rewards nearly agree, the formula's scores are "
            "smaller than yours, and where they agree exactly yours are 0/0.",
        ),
        Mistake(
            _another_eps, "Epsilon is 1e-8 whatever is passed: use the argument `eps`."
        ),
        Mistake(
            _default_eps,
            "Epsilon is 1e-4 whatever is passed. That is only its default.",
        ),
        Mistake(
            _only_centred,
            "This is the reward minus the group's mean. The division by the spread is missing.",
        ),
        Mistake(
            _one_group_a_row,
            "The numbers are right, but the shape is [P, G]: return one row of numbers, [B].",
        ),
        Mistake(
            _wrong_sign,
            "The sign is the other way round: better than the siblings should be positive.",
        ),
        Mistake(
            _scores,
            "Right, except where all rewards of a group are equal: there the computed mean is off in the last digit, "
            "and this difference over epsilon is not 0. Ask the rewards themselves whether they agree.",
        ),
    ),
    where="Look again at the worked example by hand: which numbers enter the mean, and which the spread?",
    idea="""
    Put the rewards into one row a prompt, `[P, G]`. Mean and standard deviation are then taken along the row and
    need to keep their axis. A constant row is found by asking its largest and smallest reward: rounding can leave a
    tiny centred number that epsilon lets through.
    """,
    outline="""
    ```python
    groups = rewards.view(..., ...)  # [P, G]
    centred = groups - ...
    scores = centred / (... + eps)
    constant = ... == ...  # [P, 1]
    return scores.masked_fill(..., 0.0).flatten()  # [B]
    ```
    """,
    right="Right, on batches of every size tried. What would change if all rewards of a prompt were doubled?",
)
