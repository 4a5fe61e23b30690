"""Potential-based shaping with a discount, and with rewards on the way."""

import torch
from torch import Generator, Tensor

from ..draws import integer, uniform
from ..exercise import Case, Exercise, Mistake


def my_shaped_returns(rewards: Tensor, potentials: Tensor, gamma: float) -> Tensor:
    """[K] rewards and [K] potentials before each step -> [K] shaped returns."""
    found = torch.zeros_like(rewards)
    zero = torch.zeros_like(rewards[0])
    later, after = zero, zero  # the return behind the end, and the potential there
    for k in reversed(range(len(rewards))):
        payment = rewards[k] + gamma * after - potentials[k]
        later = payment + gamma * later
        found[k], after = later, potentials[k]
    return found


def _returns(payments: Tensor, gamma: float) -> Tensor:
    found, later = torch.zeros_like(payments), torch.zeros_like(payments[0])
    for k in reversed(range(len(payments))):
        later = payments[k] + gamma * later
        found[k] = later
    return found


def _after(potentials: Tensor, last: float = 0.0) -> Tensor:
    return torch.cat([potentials[1:], torch.full_like(potentials[:1], last)])


def _kept(rewards: Tensor, potentials: Tensor, gamma: float) -> Tensor:
    after = _after(potentials, float(potentials[-1]))
    return _returns(rewards + gamma * after - potentials, gamma)


def _no_gamma_in_the_payment(
    rewards: Tensor, potentials: Tensor, gamma: float
) -> Tensor:
    return _returns(rewards + _after(potentials) - potentials, gamma)


def _no_gamma_in_the_return(
    rewards: Tensor, potentials: Tensor, gamma: float
) -> Tensor:
    return _returns(rewards + gamma * _after(potentials) - potentials, 1.0)


def _other_sign(rewards: Tensor, potentials: Tensor, gamma: float) -> Tensor:
    return _returns(rewards - gamma * _after(potentials) + potentials, gamma)


def _own_step(rewards: Tensor, potentials: Tensor, gamma: float) -> Tensor:
    return rewards + gamma * _after(potentials) - potentials


def _unshaped(rewards: Tensor, potentials: Tensor, gamma: float) -> Tensor:
    return _returns(rewards, gamma)


def _first_alone(rewards: Tensor, potentials: Tensor, gamma: float) -> Tensor:
    return _returns(rewards, gamma) - potentials[0]


def _draw(generator: Generator) -> Case:
    K = integer(generator, 2, 7)
    gamma = 0.5 + 0.5 * float(uniform(generator, 1))
    return Case(
        {
            "rewards": uniform(generator, K),
            "potentials": uniform(generator, K),
            "gamma": gamma,
        }
    )


SHAPED = Exercise(
    id="prm-shaped-return",
    title="the telescope with a discount",
    concept="prm-orm",
    minutes=15,
    difficulty="core",
    statement=r"""
    The unseen case: $\gamma < 1$, and steps have rewards of their own. `rewards` `[K]` are paid for the steps, `potentials`
    `[K]` stand *before* each step, and after the last step the completion has ended. Each step is paid its reward and
    $F_k = \gamma \Phi_k - \Phi_{k-1}$. Write `my_shaped_returns(rewards, potentials, gamma)`: from each step on the sum of
    all payments, a later one discounted by $\gamma$ for every step between. Predict first how it differs from the
    return without shaping.
    """,
    solution=my_shaped_returns,
    cases=(
        Case(
            {
                "rewards": torch.tensor([0.0, 0.0, 1.0]).double(),
                "potentials": torch.tensor([0.2, 0.5, 0.8]).double(),
                "gamma": 1.0,
            }
        ),
        Case(
            {
                "rewards": torch.tensor([0.5, 0.0, 1.0, 0.25]).double(),
                "potentials": torch.tensor([0.4, 0.1, 0.9, 0.6]).double(),
                "gamma": 0.5,
            }
        ),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _kept,
            "After the end the potential is 0. You keep its last value, so what was paid is not taken back.",
        ),
        Mistake(
            _no_gamma_in_the_payment,
            "The payment for a step needs the discount, too: without it the sum does not telescope.",
        ),
        Mistake(
            _no_gamma_in_the_return,
            "Your payments are right. Later ones have to be discounted.",
        ),
        Mistake(
            _other_sign,
            "The sign of the shaping is turned over: arriving at a high potential is paid, leaving it costs.",
        ),
        Mistake(
            _own_step,
            "These are the payments of single steps. A return sums them from each step on.",
        ),
        Mistake(_unshaped, "This is the return without shaping."),
        Mistake(
            _first_alone,
            "Only the first entry is right: each step begins at a potential of its own.",
        ),
    ),
    where="Write the payments of two steps below each other, the later one discounted. What cancels?",
    idea=r"""
    Go from the last step to the first and carry two numbers: the return so far, and the potential after the step,
    which is 0 at the end. The payment of step $k$ is its reward, plus $\gamma$ times the potential after it, minus
    that before it.
    """,
    outline="""
    ```python
    for k in reversed(range(len(rewards))):
        payment = rewards[k] + ... - ...
        later = payment + ...
        found[k], after = ..., ...
    ```
    """,
    right="Right. Compare with the return without shaping: which number is missing, and could a step have changed it?",
)
