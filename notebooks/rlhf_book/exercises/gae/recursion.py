"""GAE of a batch, computed backwards, with padding and with holes in the mask."""

import torch
from torch import Generator, Tensor

from ..draws import integer, uniform
from ..exercise import Case, Exercise, Mistake


def my_gae(
    rewards: Tensor, values: Tensor, mask: Tensor, gamma: float, lam: float
) -> Tensor:
    """[B, T] rewards, values and mask -> [B, T] advantages, 0 under a zero mask."""
    advantages = torch.zeros_like(rewards)
    for i in range(len(rewards)):
        next_value = next_advantage = torch.zeros(())
        for t in reversed(range(rewards.shape[1])):
            if mask[i, t] == 0:
                continue  # not an action of ours: the next one stays the next one
            delta = rewards[i, t] + gamma * next_value - values[i, t]
            advantages[i, t] = next_advantage = delta + gamma * lam * next_advantage
            next_value = values[i, t]
    return advantages


def _gae(
    rewards: Tensor,
    values: Tensor,
    mask: Tensor,
    gamma: float,
    lam: float,
    *,
    leak: bool = False,
    reset: bool = False,
    decay: float | None = None,
    promise: float | None = None,
    own: float = 1.0,
) -> Tensor:
    decay = gamma * lam if decay is None else decay
    promise = gamma if promise is None else promise
    columns = []
    next_value = next_advantage = torch.zeros_like(rewards[:, 0])
    for t in reversed(range(rewards.shape[1])):
        trained = mask[:, t] != 0
        delta = rewards[:, t] + promise * next_value - own * values[:, t]
        advantage = delta + decay * next_advantage
        columns.append(torch.where(trained, advantage, torch.zeros_like(advantage)))
        past = torch.zeros_like(advantage) if reset else next_advantage
        next_advantage = torch.where(trained, advantage, past)
        past = (
            values[:, t]
            if leak
            else torch.zeros_like(advantage)
            if reset
            else next_value
        )
        next_value = torch.where(trained, values[:, t], past)
    return torch.stack(columns[::-1], dim=1)


def _leaks(
    rewards: Tensor, values: Tensor, mask: Tensor, gamma: float, lam: float
) -> Tensor:
    return _gae(rewards, values, mask, gamma, lam, leak=True)


def _resets(
    rewards: Tensor, values: Tensor, mask: Tensor, gamma: float, lam: float
) -> Tensor:
    return _gae(rewards, values, mask, gamma, lam, reset=True)


def _no_mask(
    rewards: Tensor, values: Tensor, mask: Tensor, gamma: float, lam: float
) -> Tensor:
    return _gae(rewards, values, torch.ones_like(mask), gamma, lam) * mask


def _masks_first(
    rewards: Tensor, values: Tensor, mask: Tensor, gamma: float, lam: float
) -> Tensor:
    return _masks_only_first(rewards, values, mask, gamma, lam) * mask


def _masks_only_first(
    rewards: Tensor, values: Tensor, mask: Tensor, gamma: float, lam: float
) -> Tensor:
    return _gae(rewards * mask, values * mask, torch.ones_like(mask), gamma, lam)


def _padding_not_zeroed(
    rewards: Tensor, values: Tensor, mask: Tensor, gamma: float, lam: float
) -> Tensor:
    return torch.where(mask != 0, my_gae(rewards, values, mask, gamma, lam), values)


def _forgets_lam(
    rewards: Tensor, values: Tensor, mask: Tensor, gamma: float, lam: float
) -> Tensor:
    return _gae(rewards, values, mask, gamma, lam, decay=gamma)


def _forgets_gamma(
    rewards: Tensor, values: Tensor, mask: Tensor, gamma: float, lam: float
) -> Tensor:
    return _gae(rewards, values, mask, gamma, lam, decay=lam)


def _lam_on_the_value(
    rewards: Tensor, values: Tensor, mask: Tensor, gamma: float, lam: float
) -> Tensor:
    return _gae(rewards, values, mask, gamma, lam, promise=gamma * lam)


def _no_discount_of_the_value(
    rewards: Tensor, values: Tensor, mask: Tensor, gamma: float, lam: float
) -> Tensor:
    return _gae(rewards, values, mask, gamma, lam, promise=1.0)


def _targets(
    rewards: Tensor, values: Tensor, mask: Tensor, gamma: float, lam: float
) -> Tensor:
    return torch.where(
        mask != 0, my_gae(rewards, values, mask, gamma, lam) + values, 0.0
    )


def _forwards(
    rewards: Tensor, values: Tensor, mask: Tensor, gamma: float, lam: float
) -> Tensor:
    deltas = _gae(rewards, values, mask, gamma, lam, decay=0.0)
    columns, so_far = [], torch.zeros_like(rewards[:, 0])
    for t in range(rewards.shape[1]):
        so_far = torch.where(
            mask[:, t] != 0, deltas[:, t] + gamma * lam * so_far, so_far
        )
        columns.append(so_far)
    return torch.stack(columns, dim=1) * mask


def _one_step(
    rewards: Tensor, values: Tensor, mask: Tensor, gamma: float, lam: float
) -> Tensor:
    return _gae(rewards, values, mask, gamma, lam, decay=0.0)


def _case(mask: list[list[int]], seed: int, gamma: float, lam: float) -> Case:
    generator = torch.Generator().manual_seed(seed)
    rewards, values = torch.randn(
        2, len(mask), len(mask[0]), generator=generator, dtype=torch.float64
    )
    kept = torch.tensor(mask, dtype=torch.float64)
    return Case(
        {"rewards": rewards, "values": values, "mask": kept, "gamma": gamma, "lam": lam}
    )


def _draw(generator: Generator) -> Case:
    rows, width = integer(generator, 1, 4), integer(generator, 1, 7)
    lengths = torch.randint(1, width + 1, (rows,), generator=generator)
    mask = (torch.arange(width) < lengths[:, None]).double()
    if integer(generator, 0, 2):  # a tool's output somewhere
        holes = torch.rand(rows, width, generator=generator) < 0.3
        mask = torch.where(holes & (mask.sum() > 1), 0.0, mask)
        mask[0, 0] = 1.0  # somebody has to be trained
    rewards, values = torch.randn(
        2, rows, width, generator=generator, dtype=torch.float64
    )
    gamma, lam = uniform(generator, 2).tolist()
    return Case(
        {"rewards": rewards, "values": values, "mask": mask, "gamma": gamma, "lam": lam}
    )


_SHOWN = Case(
    {
        "rewards": torch.tensor([[0.0, 0, 0, 1], [0, 1, 0, 0]], dtype=torch.float64),
        "values": torch.tensor(
            [[0.8, 0.7, 0.6, 0.9], [0.8, 0.9, 0.3, 0.3]], dtype=torch.float64
        ),
        "mask": torch.tensor([[1.0, 1, 1, 1], [1, 1, 0, 0]], dtype=torch.float64),
        "gamma": 1.0,
        "lam": 0.5,
    }
)
RECURSION = Exercise(
    id="gae-recursion",
    title="a tool's output in the middle",
    concept="gae",
    minutes=12,
    difficulty="core",
    statement=r"""
    A tool's output stands in the middle of some completions. The policy did not choose these tokens, so their mask is 0:
    a *hole*. Before you write: what does `gae` of section 4 do with a hole, and which tokens suffer? Then write `my_gae`.
    It takes `rewards`, `values` and `mask`, all `[B, T]`, and the numbers `gamma` and `lam`, and returns the advantages
    `[B, T]`. A hole is stepped over: what follows a token is the next token with mask 1, however far away. Where the mask
    is 0 the advantage is 0, and the numbers in `rewards` and `values` there mean nothing.
    """,
    solution=my_gae,
    cases=(
        _SHOWN,
        _case([[1, 1, 1, 1]], 1, 1.0, 0.9),
        _case([[1, 1, 1, 1]], 2, 0.9, 1.0),
        _case([[1, 1, 1, 1]], 3, 0.8, 0.5),
        _case([[1, 1, 0, 0]], 4, 1.0, 0.9),
        _case([[1, 0, 0, 1, 1], [1, 1, 1, 0, 0]], 5, 0.9, 0.8),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _no_mask,
            "The mask only blanks the result. The recursion itself still runs through the padding, and carries what "
            "stands there into the last real token.",
        ),
        Mistake(
            _leaks,
            "The TD error takes its next value from the neighbouring column, also where that is padding or a tool's "
            "output. What is the value after the last token of a completion?",
        ),
        Mistake(
            _resets,
            "Padding is right, but a hole in the middle ends the completion for you: what came after the tool's output "
            "never reaches the tokens before it.",
        ),
        Mistake(
            _masks_first,
            "You multiply rewards and values by the mask, and then run through all columns. That is right for padding. "
            "But a hole in the middle becomes a token with reward 0 and value 0, and the tokens before it look at that "
            "one.",
        ),
        Mistake(
            _masks_only_first,
            "You multiply rewards and values by the mask, and then run through all columns: a hole in the middle "
            "becomes a token with reward 0 and value 0. It also gets an advantage, which has to be 0 where the mask "
            "is 0.",
        ),
        Mistake(_padding_not_zeroed, "Where the mask is 0 the answer has to be 0."),
        Mistake(
            _forgets_lam,
            "Advantages are carried back with gamma alone: lambda is missing.",
        ),
        Mistake(
            _forgets_gamma,
            "Advantages are carried back with lambda alone: gamma is missing.",
        ),
        Mistake(
            _lam_on_the_value,
            "Lambda has no place in the TD error: it discounts advantages, not the next value.",
        ),
        Mistake(
            _no_discount_of_the_value,
            "The next value in the TD error is not discounted: gamma is missing there.",
        ),
        Mistake(
            _targets,
            "These are the critic's targets: the advantage plus the value. Asked for is the advantage.",
        ),
        Mistake(
            _forwards,
            "You run forwards, so that a token is credited with the surprises before it. It can only have caused "
            "those that come after.",
        ),
        Mistake(
            _one_step,
            "These are the TD errors themselves: nothing of A at the next token is carried back.",
        ),
    ),
    where="Take a completion of three tokens, the second with mask 0, and write both advantages down by hand, the last one "
    "first.",
    idea="""
    Go through a completion from its end and carry two numbers along: the value and the advantage of the next token
    *that was trained*. At a hole nothing happens to them.
    """,
    outline="""
    ```python
    for t in reversed(range(T)):
        if ...:
            continue  # what is carried stays as it is
        delta = rewards[i, t] + ... - values[i, t]
        advantages[i, t] = next_advantage = delta + ...
        next_value = ...
    ```
    """,
    right="Right, with padding and holes. What would change if a truncated completion had its end valued by the critic?",
)
