"""Advantages from the rewards of steps."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake


def my_process_advantage(
    step_rewards: Tensor, step_ends: Tensor, eps: float = 1e-4
) -> Tensor:
    """One group, [G, T] each; rewards where step_ends is 1 -> [G, T] advantages."""
    ends = step_ends != 0
    steps = step_rewards[ends]  # [N], every step of every completion of the group
    normalised = torch.zeros_like(step_rewards)
    normalised[ends] = (steps - steps.mean()) / (steps.std() + eps)
    return normalised.flip(1).cumsum(1).flip(1)


def _normalised_steps(
    step_rewards: Tensor, step_ends: Tensor, eps: float = 1e-4
) -> Tensor:
    ends = step_ends != 0
    steps = step_rewards[ends]
    normalised = torch.zeros_like(step_rewards)
    normalised[ends] = (steps - steps.mean()) / (steps.std() + eps)
    return normalised


def _so_far(step_rewards: Tensor, step_ends: Tensor, eps: float = 1e-4) -> Tensor:
    return _normalised_steps(step_rewards, step_ends, eps).cumsum(1)


def _later_only(step_rewards: Tensor, step_ends: Tensor, eps: float = 1e-4) -> Tensor:
    return my_process_advantage(step_rewards, step_ends, eps) - _normalised_steps(
        step_rewards, step_ends, eps
    )


def _own_step(step_rewards: Tensor, step_ends: Tensor, eps: float = 1e-4) -> Tensor:
    normalised = _normalised_steps(step_rewards, step_ends, eps)
    own, credit = (
        torch.zeros_like(normalised),
        torch.zeros(len(normalised), dtype=normalised.dtype),
    )
    for t in reversed(range(normalised.shape[1])):
        credit = torch.where(step_ends[:, t] != 0, normalised[:, t], credit)
        own[:, t] = credit
    return own


def _whole_completion(
    step_rewards: Tensor, step_ends: Tensor, eps: float = 1e-4
) -> Tensor:
    return (
        _normalised_steps(step_rewards, step_ends, eps)
        .sum(1, keepdim=True)
        .expand_as(step_rewards)
    )


def _all_positions(
    step_rewards: Tensor, step_ends: Tensor, eps: float = 1e-4
) -> Tensor:
    rewards = step_rewards * step_ends
    normalised = (rewards - rewards.mean()) / (rewards.std() + eps) * step_ends
    return normalised.flip(1).cumsum(1).flip(1)


def _ends_ignored(step_rewards: Tensor, step_ends: Tensor, eps: float = 1e-4) -> Tensor:
    normalised = (step_rewards - step_rewards.mean()) / (step_rewards.std() + eps)
    return normalised.flip(1).cumsum(1).flip(1)


def _within_completions(
    step_rewards: Tensor, step_ends: Tensor, eps: float = 1e-4
) -> Tensor:
    normalised = torch.zeros_like(step_rewards)
    for row, ends in enumerate(step_ends != 0):
        steps = step_rewards[row, ends]
        normalised[row, ends] = (steps - steps.mean()) / (steps.std() + eps)
    return normalised.flip(1).cumsum(1).flip(1)


def _sums_normalised(
    step_rewards: Tensor, step_ends: Tensor, eps: float = 1e-4
) -> Tensor:
    to_go = (step_rewards * step_ends).flip(1).cumsum(1).flip(1)
    steps = to_go[step_ends != 0]
    return (to_go - steps.mean()) / (steps.std() + eps)


def _not_normalised(
    step_rewards: Tensor, step_ends: Tensor, eps: float = 1e-4
) -> Tensor:
    return (step_rewards * step_ends).flip(1).cumsum(1).flip(1)


def _process_population(
    step_rewards: Tensor, step_ends: Tensor, eps: float = 1e-4
) -> Tensor:
    steps = step_rewards[step_ends != 0]
    normalised = (
        (step_rewards - steps.mean()) / (steps.std(correction=0) + eps) * step_ends
    )
    return normalised.flip(1).cumsum(1).flip(1)


def _draw_steps(generator: Generator) -> Case:
    rows, width = integer(generator, 2, 7), integer(generator, 2, 9)
    ends = (torch.rand(rows, width, generator=generator) < 0.4).float()
    ends[:, integer(generator, 0, width)] = 1.0  # every completion has a step
    rewards = torch.randn(rows, width, generator=generator)
    return Case({"step_rewards": rewards, "step_ends": ends, "eps": 1e-4})


PROCESS = Exercise(
    id="grpo-process",
    title="credit for steps",
    concept="process-supervision",
    minutes=15,
    difficulty="stretch",
    statement=r"""
    A process reward model scores the end of each step. Write `my_process_advantage(step_rewards, step_ends, eps)` for
    one group: both are `[G, T]`, and `step_rewards` means something only where `step_ends` is 1. Normalise each step's
    reward by the mean and the sample standard deviation of *all steps of all completions* of the group, then give each
    token the sum of the normalised rewards of its own step and of those that follow:

    $$A_{i,t} = \sum_{k:\, \mathrm{end}(k) \ge t} \tilde r_{i,k}$$

    Tokens after the last step get 0. The result is `[G, T]`.
    """,
    solution=my_process_advantage,
    cases=(
        Case(
            {
                "step_rewards": torch.tensor(
                    [[0.0, 1.0, 0.0, 1.0], [0.0, 0.0, 0.0, 9.0]]
                ),
                "step_ends": torch.tensor([[0.0, 1.0, 0.0, 1.0], [0.0, 1.0, 1.0, 0.0]]),
                "eps": 1e-4,
            }
        ),
        Case(
            {
                "step_rewards": torch.tensor([[1.0, 0.0], [0.0, 0.0]]),
                "step_ends": torch.ones(2, 2),
                "eps": 1e-4,
            }
        ),
        Case(
            {
                "step_rewards": torch.tensor([[2.0, 7.0], [5.0, 1.0]]),
                "step_ends": torch.eye(2),
                "eps": 1e-4,
            }
        ),
    ),
    draw=_draw_steps,
    mistakes=(
        Mistake(
            _so_far,
            "You sum from the start up to each token. A token is not to blame for what came before it: look forwards.",
        ),
        Mistake(
            _later_only,
            "The step in which a token stands counts too: your sum begins after it.",
        ),
        Mistake(
            _normalised_steps,
            "Only a step's last token gets an advantage: all tokens of the step, and those before it, led there.",
        ),
        Mistake(
            _own_step,
            "Each token is credited with its own step alone. It has a share in the steps that follow, too.",
        ),
        Mistake(
            _whole_completion,
            "Every token gets the same sum. A token that comes after a step cannot have caused it.",
        ),
        Mistake(
            _all_positions,
            "The positions that end no step enter your mean and your spread as zeros: only scored steps count.",
        ),
        Mistake(
            _ends_ignored,
            "You read `step_rewards` everywhere: it means something only where `step_ends` is 1.",
        ),
        Mistake(
            _within_completions,
            "You normalise within each completion. Then a completion of good steps looks like one of bad steps: compare "
            "across the group.",
        ),
        Mistake(
            _sums_normalised,
            "You sum first and normalise the sums. Here the steps are normalised, then summed.",
        ),
        Mistake(
            _not_normalised,
            "The rewards are summed as they are: normalise them first, over the steps of the group.",
        ),
        Mistake(
            _process_population,
            "The population's standard deviation (ddof 0): read again which one is asked for.",
        ),
    ),
    where="Write down the steps of the group in one list, normalise that list, and put the numbers back.",
    idea="""
    A truth value says where steps end. Read the rewards there into one list `[N]`, for the whole group together,
    normalise the list, and write it back into zeros. A token's advantage is then a sum from its position to the end
    of the row.
    """,
    outline="""
    ```python
    ends = step_ends != 0
    steps = ...  # [N], of all completions of the group
    normalised = torch.zeros_like(step_rewards)
    normalised[ends] = ...
    return ...  # the sum from the right: turn round, add up, turn back
    ```
    """,
    right="Right. Two completions with the same total now teach different tokens different things.",
)
