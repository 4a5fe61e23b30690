"""From a table of win rates straight to the policy that DPO is looking for."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake


def my_policy(reference: Tensor, wins: Tensor, beta: float) -> Tensor:
    """[V] probabilities, [V, V] win rates (row beats column) -> [V]: the optimum."""
    rewards = wins[:, 0].logit()
    return (reference.log() + rewards / beta).softmax(0)


def _no_reference(reference: Tensor, wins: Tensor, beta: float) -> Tensor:
    return (wins[:, 0].logit() / beta).softmax(0)


def _times_beta(reference: Tensor, wins: Tensor, beta: float) -> Tensor:
    return (reference.log() + beta * wins[:, 0].logit()).softmax(0)


def _beta_forgotten(reference: Tensor, wins: Tensor, beta: float) -> Tensor:
    return (reference.log() + wins[:, 0].logit()).softmax(0)


def _win_rate_as_reward(reference: Tensor, wins: Tensor, beta: float) -> Tensor:
    return (reference.log() + wins[:, 0] / beta).softmax(0)


def _mean_win_rate(reference: Tensor, wins: Tensor, beta: float) -> Tensor:
    return (reference.log() + wins.mean(1) / beta).softmax(0)


def _losses(reference: Tensor, wins: Tensor, beta: float) -> Tensor:
    return (reference.log() + wins[0].logit() / beta).softmax(0)


def _log_win_rate(reference: Tensor, wins: Tensor, beta: float) -> Tensor:
    return (reference.log() + wins[:, 0].log() / beta).softmax(0)


def _case(reference: list[float], rewards: list[float], beta: float) -> Case:
    r = torch.tensor(rewards, dtype=torch.float64)
    return Case(
        {
            "reference": torch.tensor(reference, dtype=torch.float64),
            "wins": (r[:, None] - r[None, :]).sigmoid(),
            "beta": beta,
        }
    )


def _draw(generator: Generator) -> Case:
    n = integer(generator, 2, 6)
    logits, rewards = torch.randn(2, n, generator=generator, dtype=torch.float64)
    beta = integer(generator, 2, 10) / 5
    return _case(logits.softmax(0).tolist(), rewards.tolist(), beta)


FROM_WINS = Exercise(
    id="rm-from-wins",
    title="from win rates to a policy",
    concept="dpo",
    minutes=12,
    difficulty="core",
    statement=r"""
    A prompt has $V$ completions. Somebody counted all comparisons: `wins[i, j]` is the share in which $i$ beats $j$ (one half on the
    diagonal), and the shares follow Bradley-Terry exactly. Given the `reference` `[V]` and `beta`, write `my_policy`: the probabilities `[V]`
    of the policy at which DPO's loss is least. No training, and no reward is given.
    """,
    solution=my_policy,
    cases=(
        _case([0.5, 0.3, 0.2], [0.0, 1.0, -1.0], 0.5),
        _case([0.9, 0.1], [0.0, 2.0], 1.0),
        _case([0.25, 0.25, 0.25, 0.25], [1.0, 0.0, 2.0, 0.5], 2.0),
        _case([0.1, 0.2, 0.7], [3.0, 0.0, -2.0], 1.5),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _no_reference, "The reference is missing: the KL penalty pulls towards it."
        ),
        Mistake(
            _times_beta,
            "A large beta should hold the policy near the reference, and yours does the opposite.",
        ),
        Mistake(_beta_forgotten, "Your policy does not depend on beta."),
        Mistake(
            _win_rate_as_reward,
            "A win rate is no reward: which function of it is a difference of rewards?",
        ),
        Mistake(_mean_win_rate, "The mean win rate is what IPO maximises, not DPO."),
        Mistake(_losses, "Rows and columns are exchanged: the worst completion gains."),
        Mistake(
            _log_win_rate,
            "The logarithm of a win rate is not a difference of rewards. Look at sigma(r_i - r_j).",
        ),
    ),
    where="Turn sigma(r_i - r_0) = wins[i, 0] around. The reward of completion 0 is a constant, and constants cancel.",
    idea=r"""
    Column 0 of `wins` holds $\sigma(r_i - r_0)$. Its inverse function gives all rewards up to one constant. DPO's
    least loss is reached by the optimum of reward minus KL: the reference, tilted by the rewards over $\beta$.
    """,
    outline="""
    ```python
    rewards = ...  # [V], the sigmoid turned around, of one column
    return (... + ... / beta).softmax(0)  # in logarithms
    ```
    """,
    right=(
        "Right. Any column gives the same policy, as the rewards then differ by a constant. With counted win rates that do not "
        "follow Bradley-Terry the columns disagree, and DPO finds a compromise."
    ),
)
