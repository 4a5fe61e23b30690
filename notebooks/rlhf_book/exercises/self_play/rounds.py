"""Where SPIN stands after some iterations, each played to its end."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given


def my_spin_after(data: Tensor, start: Tensor, beta: float, rounds: int) -> Tensor:
    """[A] and [A] probabilities -> [A]: the policy after so many iterations."""
    left = (1 - 1 / beta) ** rounds
    return (data.log() + left * (start.log() - data.log())).softmax(-1)


def _dpo(data: Tensor, start: Tensor, beta: float, rounds: int) -> Tensor:
    return (start.log() + (data.log() - start.log()) / beta).softmax(-1)


def _shrinks(data: Tensor, start: Tensor, beta: float, rounds: int) -> Tensor:
    left = (1 - beta) ** rounds
    return (data.log() + left * (start.log() - data.log())).softmax(-1)


def _mixture(data: Tensor, start: Tensor, beta: float, rounds: int) -> Tensor:
    left = (1 - 1 / beta) ** rounds
    return data + left * (start - data)


def _data(data: Tensor, start: Tensor, beta: float, rounds: int) -> Tensor:
    return data


def _unnormalised(data: Tensor, start: Tensor, beta: float, rounds: int) -> Tensor:
    left = (1 - 1 / beta) ** rounds
    return (data.log() + left * (start.log() - data.log())).exp()


def _draw(generator: Generator) -> Case:
    size, rounds = integer(generator, 2, 5), integer(generator, 2, 5)
    data, start = torch.randn(2, size, generator=generator, dtype=torch.float64)
    beta = 0.4 + 2 * torch.rand(1, generator=generator).item()
    return Case(
        {
            "data": data.softmax(-1),
            "start": start.softmax(-1),
            "beta": beta,
            "rounds": rounds,
        }
    )


def _case(data: list[float], start: list[float], beta: float, rounds: int) -> Case:
    of = [torch.tensor(x, dtype=torch.float64) for x in (data, start)]
    return Case({"data": of[0], "start": of[1], "beta": beta, "rounds": rounds})


ROUNDS = Exercise(
    id="play-spin-rounds",
    title="SPIN after k rounds",
    concept="spin",
    minutes=15,
    difficulty="core",
    statement=r"""
    An iteration of SPIN, played to its end, turns the policy $q$ into one proportional to $q\,(p/q)^{1/\beta}$, with $p$ the distribution of the
    demonstrations. Write `my_spin_after(data, start, beta, rounds)`: the policy after so many iterations, without running
    them one by one.

    Predict first for demonstrations of which 0.6 are right, a start with 0.5, and $\beta = 0.4$: is the policy after one round more
    often right than the demonstrations? After two?
    """,
    solution=my_spin_after,
    cases=(
        _case([0.6, 0.4], [0.5, 0.5], 2.0, 1),
        _case([0.6, 0.4], [0.5, 0.5], 0.4, 2),
        _case([0.2, 0.3, 0.5], [0.6, 0.3, 0.1], 1.25, 3),
    ),
    draw=_draw,
    mistakes=(
        Mistake(_dpo, "One round. In the next one the reference is the new policy."),
        Mistake(_shrinks, "The power is one over beta."),
        Mistake(
            _mixture,
            "What shrinks by a factor in each round is a difference of logarithms.",
        ),
        Mistake(
            _data, "That is the fixed point, which beta = 1 alone reaches at once."
        ),
        Mistake(
            given(my_spin_after, rounds=lambda rounds: rounds + 1),
            "One round too many.",
        ),
        Mistake(_unnormalised, "Probabilities sum to 1."),
    ),
    where="Take logarithms: what does one round do to log q - log p, up to a constant?",
    idea=r"""
    One round gives $\log q_{\text{new}} = \log q + (\log p - \log q)/\beta$, up to a constant. So the difference
    $\log q - \log p$ is multiplied by one number a round. What is it, and what is it after many?
    """,
    outline="""
    ```python
    left = (...) ** rounds  # what is left of the difference
    return (data.log() + ...).softmax(-1)
    ```
    """,
    right="Right. The factor 1 - 1/beta is below -1 for beta below one half: then every round is further off, on the other side.",
)
