"""The price of the KL that belongs to a bound."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given


def my_beta(probs: Tensor, advantages: Tensor, delta: float) -> float:
    """[V] old policy and advantages -> the beta with KL(old || new) = delta."""
    low, high = 1e-4, 1e6
    for _ in range(100):
        beta = (low * high) ** 0.5
        new = (probs.log() + advantages / beta).log_softmax(-1)
        kl = (probs * (probs.log() - new)).sum()
        low, high = (beta, high) if kl > delta else (low, beta)
    return (low * high) ** 0.5


def _other_direction(probs: Tensor, advantages: Tensor, delta: float) -> float:
    low, high = 1e-4, 1e6
    for _ in range(100):
        beta = (low * high) ** 0.5
        new = (probs.log() + advantages / beta).log_softmax(-1)
        kl = (new.exp() * (new - probs.log())).sum()
        low, high = (beta, high) if kl > delta else (low, beta)
    return (low * high) ** 0.5


def _second_order(probs: Tensor, advantages: Tensor, delta: float) -> float:
    mean = probs @ advantages
    return ((probs @ (advantages - mean) ** 2) / (2 * delta)).sqrt().item()


def _inverse(probs: Tensor, advantages: Tensor, delta: float) -> float:
    return 1 / my_beta(probs, advantages, delta)


def _of_the_logits(probs: Tensor, advantages: Tensor, delta: float) -> float:
    low, high = 1e-4, 1e6
    for _ in range(100):
        beta = (low * high) ** 0.5
        new = (probs + advantages / beta).log_softmax(-1)
        kl = (probs * (probs.log() - new)).sum()
        low, high = (beta, high) if kl > delta else (low, beta)
    return (low * high) ** 0.5


def _case(probs: list[float], advantages: list[float], delta: float) -> Case:
    p, A = (torch.tensor(a, dtype=torch.float64) for a in (probs, advantages))
    return Case({"probs": p, "advantages": A, "delta": delta})


def _draw(generator: Generator) -> Case:
    V = integer(generator, 2, 6)
    logits, A = torch.randn(2, V, generator=generator, dtype=torch.float64)
    p = logits.softmax(-1)
    A = A + torch.arange(V) * 0.3  # never all alike
    delta = 10 ** (-3 + 2.3 * torch.rand((), generator=generator).item())
    return Case({"probs": p, "advantages": A - p @ A, "delta": delta})


BETA = Exercise(
    id="tr-beta",
    title="which price belongs to which bound?",
    concept="trpo",
    minutes=12,
    difficulty="stretch",
    statement=r"""
    One state, old policy `probs` `[V]`, exact `advantages` `[V]`. The sum $\sum_a \pi(a) A(a) - \beta\, \mathrm{KL}(\pi \,\Vert\, \pi_\text{old})$ (new first, as
    in the KL penalty of RLHF) is maximised by $\pi(a) \propto \pi_\text{old}(a)\, e^{A(a)/\beta}$. Write
    `my_beta`: return the $\beta$ at which that step has $\mathrm{KL}(\pi_\text{old} \,\Vert\, \pi)$ equal to `delta`. That KL
    (old first, as in TRPO) falls as $\beta$ grows, so halving an interval will do. Predict first: all advantages are doubled; what happens to $\beta$?
    """,
    solution=my_beta,
    cases=(
        _case([0.049, 0.592, 0.359], [1.31, 0.31, -0.69], 0.01),
        _case([0.5, 0.5], [1.0, -1.0], 0.3),
        _case([0.9, 0.1], [-0.2, 1.8], 0.1),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _other_direction,
            "This is the KL with the new policy first. The bound has the old one first.",
        ),
        Mistake(
            _second_order,
            "This is the second-order estimate. It is near only for a small delta.",
        ),
        Mistake(_inverse, "The other way round: a larger price, a smaller step."),
        Mistake(
            given(my_beta, probs=lambda probs: torch.full_like(probs, 1 / len(probs))),
            "You start from the uniform policy. The exponential multiplies the old one.",
        ),
        Mistake(
            _of_the_logits,
            "Add A / beta to the old log-probabilities, not to the probabilities.",
        ),
        Mistake(
            given(my_beta, delta=lambda delta: delta / 2),
            "Half of the bound: the KL is given whole.",
        ),
    ),
    where="Write the KL at a given beta as a function, and halve an interval of beta (in its logarithm) around delta.",
    idea=r"""
    Write a function of $\beta$ alone: tilt the logarithm of the old policy by $A/\beta$, normalise, and measure
    $\mathrm{KL}(\pi_\text{old} \,\Vert\, \pi)$. A large $\beta$ moves nothing, a small one moves a lot. If the KL
    in the middle is too large, which half of the interval is left?
    """,
    outline="""
    ```python
    low, high = ...  # wide enough for every case
    for _ in range(100):
        beta = ...  # the middle, in the logarithm
        new = ...  # log-probs of the tilted policy
        kl = ...  # old first
        low, high = ... if kl > delta else ...
    ```
    """,
    right="Right. Only A / beta occurs, so doubled advantages need the doubled beta for the same KL. A fixed beta does not bound the KL.",
)
