"""The n-step advantage of every token of one completion."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake


def my_n_step(rewards: Tensor, values: Tensor, n: int) -> Tensor:
    """Rewards and values [T] of one completion -> [T]: its n-step advantages."""
    T = len(rewards)
    answer = []
    for t in range(T):
        came = rewards[t : t + n].sum()
        promised = values[t + n] if t + n < T else 0.0  # after the end nothing comes
        answer.append(came + promised - values[t])
    return torch.stack(answer)


def _advantage(
    rewards: Tensor,
    values: Tensor,
    n: int,
    *,
    ahead: int = 0,
    end: float = 0.0,
    stop: bool = True,
) -> Tensor:
    T = len(rewards)
    answer = []
    for t in range(T):
        at = t + n + ahead
        promised = values[at] if at < T else end * values[-1]
        came = rewards[t : t + n].sum() if stop else rewards[t:].sum()
        answer.append(came + promised - values[t])
    return torch.stack(answer)


def _bootstraps_one_early(rewards: Tensor, values: Tensor, n: int) -> Tensor:
    return _advantage(rewards, values, n, ahead=-1)


def _bootstraps_one_late(rewards: Tensor, values: Tensor, n: int) -> Tensor:
    return _advantage(rewards, values, n, ahead=1)


def _last_value_goes_on(rewards: Tensor, values: Tensor, n: int) -> Tensor:
    return _advantage(rewards, values, n, end=1.0)


def _rewards_to_the_end(rewards: Tensor, values: Tensor, n: int) -> Tensor:
    return _advantage(rewards, values, n, stop=False)


def _no_baseline(rewards: Tensor, values: Tensor, n: int) -> Tensor:
    return _advantage(rewards, values, n) + values


def _no_bootstrap(rewards: Tensor, values: Tensor, n: int) -> Tensor:
    return torch.stack(
        [rewards[t : t + n].sum() - values[t] for t in range(len(rewards))]
    )


def _one_reward_more(rewards: Tensor, values: Tensor, n: int) -> Tensor:
    return torch.stack(
        [
            rewards[t : t + n + 1].sum()
            + (values[t + n] if t + n < len(values) else 0.0)
            - values[t]
            for t in range(len(rewards))
        ]
    )


def _wraps(rewards: Tensor, values: Tensor, n: int) -> Tensor:
    came = torch.stack([rewards[t : t + n].sum() for t in range(len(rewards))])
    return came + values.roll(-n) - values


def _draw(generator: Generator) -> Case:
    T = integer(generator, 1, 8)
    rewards, values = torch.randn(2, T, generator=generator, dtype=torch.float64)
    if integer(generator, 0, 2):
        rewards = torch.where(
            torch.arange(T) == T - 1, 1.0, 0.0
        ).double()  # as verifiers pay
    return Case({"rewards": rewards, "values": values, "n": integer(generator, 1, 9)})


def _numbers(*x: float | int) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)


N_STEP = Exercise(
    id="gae-n-step",
    title="n rewards, then the critic",
    concept="gae",
    minutes=8,
    difficulty="core",
    statement=r"""
    For one completion there are `rewards` and `values` `[T]`; `values[t]` is the critic's $V(s_t)$ *before* token $t$ is
    written. Write `my_n_step`: the advantage `[T]` of every token if the critic is asked after `n` tokens, with
    $\gamma = 1$. At $n = 1$ it is the TD error, at $n = T$ the return minus the value. Rewards and values past the last
    token are 0, and `n` may be larger than the number of tokens.
    """,
    solution=my_n_step,
    cases=(
        Case(
            {
                "rewards": _numbers(0, 0, 0, 1),
                "values": _numbers(0.8, 0.7, 0.6, 0.9),
                "n": 2,
            }
        ),
        Case(
            {
                "rewards": _numbers(0.1, -0.2, 0.3, 1),
                "values": _numbers(0.5, 0.7, 0.2, 0.9),
                "n": 1,
            }
        ),
        Case(
            {
                "rewards": _numbers(0.1, -0.2, 0.3, 1),
                "values": _numbers(0.5, 0.7, 0.2, 0.9),
                "n": 3,
            }
        ),
        Case(
            {
                "rewards": _numbers(0.1, -0.2, 1),
                "values": _numbers(0.5, 0.7, 0.9),
                "n": 9,
            }
        ),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _bootstraps_one_early,
            "The critic is asked one token too early: after the rewards of n tokens the state is n tokens further on.",
        ),
        Mistake(
            _bootstraps_one_late,
            "The critic is asked one token too late: a reward between is never counted.",
        ),
        Mistake(
            _last_value_goes_on,
            "Past the end you go on with the last value. Nothing is to come there: what is its value?",
        ),
        Mistake(
            _rewards_to_the_end,
            "You count all rewards to the end, and then the critic's promise of them again.",
        ),
        Mistake(
            _no_baseline,
            "This is what came and what is promised. What was expected beforehand is not subtracted.",
        ),
        Mistake(
            _no_bootstrap,
            "You never ask the critic what is still to come after n tokens.",
        ),
        Mistake(
            _one_reward_more,
            "You count n + 1 rewards: the last of them is already in the critic's promise.",
        ),
        Mistake(
            _wraps,
            "Rolling wraps around: tokens near the end bootstrap from the values of the first tokens.",
        ),
    ),
    where="Write down t = T - 1 and n = 1 by hand: one reward, no promise, minus one value.",
    idea=r"""
    $A^{(n)}_t$ has three parts: the rewards of tokens $t, \dots, t+n-1$; the critic's promise at $t+n$; minus the
    value at $t$. The promise is 0 if the completion has ended by then.
    """,
    outline="""
    ```python
    for t in range(T):
        came = rewards[...].sum()  # a slice that runs past the end stops there
        promised = ... if ... else 0.0
        answer.append(...)
    ```
    """,
    right="Right. For which n does the critic's opinion of later states no longer matter?",
)
