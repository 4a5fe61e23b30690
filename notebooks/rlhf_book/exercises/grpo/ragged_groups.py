"""The group's advantage where groups have different sizes and do not lie together."""

import torch
from torch import Generator, Tensor

from ..draws import books_batch, integer, uniform
from ..exercise import Case, Exercise, Mistake


def my_ragged_advantage(rewards: Tensor, prompts: Tensor, eps: float = 1e-4) -> Tensor:
    """[B] rewards, [B] numbers of the rows' prompts -> [B] advantages."""
    advantages = torch.zeros_like(rewards)
    for prompt in prompts.unique():
        rows = prompts == prompt  # [B]
        group = rewards[rows]
        if group.max() > group.min():  # two different rewards at least
            advantages[rows] = (group - group.mean()) / (group.std() + eps)
    return advantages


def _by_prompt(
    rewards: Tensor,
    prompts: Tensor,
    eps: float = 1e-4,
    *,
    ddof: int = 1,
    scale: str = "group",
    sign: float = 1.0,
) -> Tensor:
    """The right answer, and its neighbours."""
    advantages = torch.zeros_like(rewards)
    for prompt in prompts.unique():
        rows = prompts == prompt
        group = rewards[rows]
        if group.max() > group.min():
            spread = rewards if scale == "batch" else group
            divisor = spread.std(correction=ddof) + eps if scale != "none" else 1.0
            advantages[rows] = sign * (group - group.mean()) / divisor
    return advantages


def _over_the_batch(rewards: Tensor, prompts: Tensor, eps: float = 1e-4) -> Tensor:
    return (rewards - rewards.mean()) / (rewards.std() + eps)


def _in_order_of_the_rows(
    rewards: Tensor, prompts: Tensor, eps: float = 1e-4
) -> Tensor:
    counts = prompts.unique(return_counts=True)[1].tolist()
    parts = []
    for group in rewards.split(counts):
        equal = bool(group.max() == group.min())
        score = (group - group.mean()) / (group.std() + eps)
        parts.append(torch.zeros_like(group) if equal else score)
    return torch.cat(parts)


def _sorted_by_prompt(rewards: Tensor, prompts: Tensor, eps: float = 1e-4) -> Tensor:
    order = prompts.argsort(stable=True)
    return _by_prompt(rewards, prompts, eps)[order]


def _population(rewards: Tensor, prompts: Tensor, eps: float = 1e-4) -> Tensor:
    return _by_prompt(rewards, prompts, eps, ddof=0)


def _scale_of_the_batch(rewards: Tensor, prompts: Tensor, eps: float = 1e-4) -> Tensor:
    return _by_prompt(rewards, prompts, eps, scale="batch")


def _only_centred(rewards: Tensor, prompts: Tensor, eps: float = 1e-4) -> Tensor:
    return _by_prompt(rewards, prompts, eps, scale="none")


def _another_eps(rewards: Tensor, prompts: Tensor, eps: float = 1e-4) -> Tensor:
    return _by_prompt(rewards, prompts, 1e-8)


def _wrong_sign(rewards: Tensor, prompts: Tensor, eps: float = 1e-4) -> Tensor:
    return _by_prompt(rewards, prompts, eps, sign=-1.0)


def _a_single_keeps_its_reward(
    rewards: Tensor, prompts: Tensor, eps: float = 1e-4
) -> Tensor:
    advantages = _by_prompt(rewards, prompts, eps)
    single = (prompts[:, None] == prompts).sum(1) == 1
    return torch.where(single, rewards, advantages)


def _ask_nobody_whether_they_agree(
    rewards: Tensor, prompts: Tensor, eps: float = 1e-4
) -> Tensor:
    advantages = torch.zeros_like(rewards)
    for prompt in prompts.unique():
        rows = prompts == prompt
        group = rewards[rows]
        if len(group) > 1:
            advantages[rows] = (group - group.mean()) / (group.std() + eps)
    return advantages


def _draw_ragged(generator: Generator) -> Case:
    groups, rows = integer(generator, 1, 6), integer(generator, 2, 24)
    prompts = torch.randint(0, groups, (rows,), generator=generator)
    rewards = uniform(generator, rows).float()
    if integer(generator, 0, 2):  # right or wrong
        rewards = (rewards < 0.5).float()
    return Case({"rewards": rewards, "prompts": prompts, "eps": 1e-4})


_MIXED = torch.tensor([1, 0, 1, 2, 0, 0, 1, 2, 2, 2])
RAGGED_GROUPS = Exercise(
    id="grpo-ragged-groups",
    title="groups that lost some members",
    concept="group-advantage",
    minutes=15,
    difficulty="core",
    statement=r"""
    In a real run some completions are lost: a verifier fails, or a completion was cut off and is left out. Then groups
    have different sizes, and the rows of a prompt need not stand together. Write
    `my_ragged_advantage(rewards, prompts, eps)`: `rewards` is `[B]`, `prompts` is `[B]` and holds a whole number for
    each row, equal for rows of the same prompt. The result is `[B]`, in the order of the rows: the advantage of GRPO,
    with the sample standard deviation of the row's own group. A group whose rewards are all equal gets exactly 0, in
    single precision too. Decide what a group of one gets, and why.
    """,
    solution=my_ragged_advantage,
    cases=(
        Case(
            {
                "rewards": books_batch()["rewards"],
                "prompts": torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]),
                "eps": 1e-4,
            }
        ),
        Case(
            {
                "rewards": torch.tensor(
                    [1.0, 0.0, 4.0, 2.0, 3.0, 7.0, 0.5, 2.5, 0.0, 9.0]
                ),
                "prompts": _MIXED,
                "eps": 1e-4,
            }
        ),
        # A group of one beside a group of three.
        Case(
            {
                "rewards": torch.tensor([2.0, 5.0, 1.0, 0.0]),
                "prompts": torch.tensor([3, 7, 3, 3]),
                "eps": 1e-4,
            }
        ),
        # A spread as small as epsilon.
        Case(
            {
                "rewards": torch.tensor(
                    [0.5, 0.5002, 0.5001, 0.5], dtype=torch.float64
                ),
                "prompts": torch.tensor([1, 1, 1, 1]),
                "eps": 1e-4,
            }
        ),
        # Equal rewards whose mean does not round to the reward itself.
        Case(
            {
                "rewards": torch.full((12,), 1.1),
                "prompts": torch.zeros(12, dtype=torch.long),
                "eps": 1e-4,
            },
            exact=True,
        ),
    ),
    draw=_draw_ragged,
    mistakes=(
        Mistake(
            _over_the_batch,
            "You compare each completion with the whole batch: look at `prompts`.",
        ),
        Mistake(
            _in_order_of_the_rows,
            "You count how many rows each prompt has, and then take the rows in their order. Rows of one prompt need "
            "not stand together.",
        ),
        Mistake(
            _sorted_by_prompt,
            "The numbers are right, and stand in the order of the prompts. Return them in the order of the rows.",
        ),
        Mistake(
            _population,
            "The scale is off by a factor that depends on the size of the group: this is the population's standard "
            "deviation.",
        ),
        Mistake(
            _scale_of_the_batch,
            "The mean is the group's, but the standard deviation is that of the whole batch.",
        ),
        Mistake(
            _only_centred,
            "This is the reward minus the group's mean. The division is missing.",
        ),
        Mistake(
            _another_eps, "Epsilon is 1e-8 whatever is passed: use the argument `eps`."
        ),
        Mistake(
            _wrong_sign,
            "The sign is the other way round: better than the group should be positive.",
        ),
        Mistake(
            _a_single_keeps_its_reward,
            "A group of one keeps its reward as its advantage. Better than whom? With nobody to compare with, nothing "
            "is known.",
        ),
        Mistake(
            _ask_nobody_whether_they_agree,
            "Right, except where all rewards of a group are equal: the computed mean is off in the last digit. Ask "
            "the rewards themselves whether they agree.",
        ),
    ),
    where="Go through the prompts one by one: which rows belong to this one, and how many are they?",
    idea="""
    For each different number in `prompts` make a truth value for each row, "belongs to this prompt". With it you
    read the rewards of one group, whatever its size, and write its advantages to the same rows. A group of one has
    no spread and nothing to be compared with.
    """,
    outline="""
    ```python
    advantages = torch.zeros_like(rewards)
    for prompt in ...:  # each one once
        rows = ...  # [B], true or false
        group = rewards[rows]
        if ...:  # asks the rewards whether they differ, not their std
            advantages[rows] = ...
    ```
    """,
    right="Right. A group of one has nobody to compare with, so its only safe advantage is 0.",
)
