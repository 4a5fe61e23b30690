"""How far the mean reward is from the constant that the squared loss asks for."""

import torch
from torch import Generator, Tensor

from ..draws import integer, uniform
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given, negated


def my_gap(rewards: Tensor, probs: Tensor, tau: float) -> Tensor:
    """[N] rewards and probabilities: tau log Z minus the mean reward, a number."""
    log_z = torch.logsumexp(rewards / tau + probs.log(), 0)
    return tau * log_z - (probs * rewards).sum()


def _overflows(rewards: Tensor, probs: Tensor, tau: float) -> Tensor:
    return tau * (probs * (rewards / tau).exp()).sum().log() - (probs * rewards).sum()


def _no_tau(rewards: Tensor, probs: Tensor, tau: float) -> Tensor:
    return torch.logsumexp(rewards / tau + probs.log(), 0) - (probs * rewards).sum()


def _half_the_variance(rewards: Tensor, probs: Tensor, tau: float) -> Tensor:
    mean = (probs * rewards).sum()
    return (probs * (rewards - mean) ** 2).sum() / (2 * tau)


def _times_tau(rewards: Tensor, probs: Tensor, tau: float) -> Tensor:
    log_z = torch.logsumexp(rewards * tau + probs.log(), 0)
    return tau * log_z - (probs * rewards).sum()


def _largest(rewards: Tensor, probs: Tensor, tau: float) -> Tensor:
    return rewards.max() - (probs * rewards).sum()


def _constant_alone(rewards: Tensor, probs: Tensor, tau: float) -> Tensor:
    return tau * torch.logsumexp(rewards / tau + probs.log(), 0)


def _draw(generator: Generator) -> Case:
    n = integer(generator, 2, 7)
    probs = 0.05 + uniform(generator, n)
    return Case(
        {
            "rewards": 3 * uniform(generator, n) - 1,
            "probs": probs / probs.sum(),
            "tau": 0.1 + 3 * float(uniform(generator, 1)),
        }
    )


def _case(rewards: list[float], probs: list[float], tau: float) -> Case:
    return Case(
        {
            "rewards": torch.tensor(rewards).double(),
            "probs": torch.tensor(probs).double(),
            "tau": tau,
        }
    )


GAP = Exercise(
    id="kimi-gap",
    title="how far off is the mean reward?",
    concept="kimi-k2",
    minutes=10,
    difficulty="core",
    statement=r"""
    A prompt has $N$ possible completions, with `rewards` and with probabilities `probs` under the old policy. Write
    `my_gap(rewards, probs, tau)`: $\delta = \tau \log Z - \mathbb E[R]$. It has to survive rewards of 10 at
    $\tau = 0.01$. Before you run it, order by $\delta$, for $\tau = 0.1$: a prompt with one right completion in ten, one with five in
    ten, one with nine in ten. At which of them is the mean reward farthest
    from the constant of step 3?
    """,
    solution=my_gap,
    cases=(
        _case([1.0, 0.0], [0.1, 0.9], 0.1),
        _case([2.0, 0.5, -1.0], [0.2, 0.5, 0.3], 1.0),
        _case([1.0, 1.0, 1.0], [0.2, 0.5, 0.3], 0.5),
        _case([10.0, 9.0, 0.0], [0.2, 0.3, 0.5], 0.01),
        _case([0.0, 3.0], [0.7, 0.3], 4.0),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _overflows,
            "The exponential of a reward over a small tau is larger than any float. Which function of torch takes the "
            "logarithm of such a sum safely?",
        ),
        Mistake(
            _no_tau,
            "The two terms have different units: a logarithm has none, and a reward is a reward.",
        ),
        Mistake(
            given(my_gap, probs=lambda probs: torch.full_like(probs, 1 / len(probs))),
            "You count all completions alike. Both means are those of the old policy.",
        ),
        Mistake(
            _half_the_variance,
            "That is the first term of the expansion for large tau. The exact number is asked for.",
        ),
        Mistake(
            _times_tau,
            "A small tau makes the best completions count more. Yours makes them count less.",
        ),
        Mistake(
            _largest,
            "That is the limit for tau to 0. The exact number depends on tau.",
        ),
        Mistake(
            _constant_alone,
            "That is the right constant alone. How much larger than the mean reward is it?",
        ),
        Mistake(
            negated(my_gap),
            "The sign is wrong: by Jensen's inequality this number is at least 0.",
        ),
    ),
    where="The logarithm of a mean of exponentials: compare it with the mean for a tau of 100, where both should nearly agree.",
    idea=r"""
    $\tau \log Z = \tau \log \sum_y \pi(y)\, e^{R(y)/\tau}$. With rewards of 10 at $\tau = 0.01$ the exponential is
    $e^{1000}$: so the sum has to stay in the logarithm, with $\log \pi$ beside $R/\tau$.
    """,
    outline="""
    ```python
    log_z = torch.logsumexp(..., 0)  # one number, nothing exponentiated alone
    return ... - ...  # minus the mean reward
    ```
    """,
    right="Right. The gap is largest for the hardest of the three prompts, although its variance is that of the easiest: the "
    "variance is only the first term.",
)
