"""The Fisher matrix of a table of policies, times a vector."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given


def my_product(probs: Tensor, visits: Tensor, v: Tensor) -> Tensor:
    """[S, V] policy, [S] visits, [S, V] vector -> [S, V], F v."""
    centred = v - (probs * v).sum(-1, keepdim=True)
    return visits[:, None] / visits.sum() * probs * centred


def _no_mean(probs: Tensor, visits: Tensor, v: Tensor) -> Tensor:
    return visits[:, None] / visits.sum() * probs * v


def _plain_mean(probs: Tensor, visits: Tensor, v: Tensor) -> Tensor:
    return visits[:, None] / visits.sum() * probs * (v - v.mean(-1, keepdim=True))


def _not_divided(probs: Tensor, visits: Tensor, v: Tensor) -> Tensor:
    return my_product(probs, visits, v) * visits.sum()


def _not_weighted(probs: Tensor, visits: Tensor, v: Tensor) -> Tensor:
    return visits[:, None] / visits.sum() * (v - (probs * v).sum(-1, keepdim=True))


def _inverse(probs: Tensor, visits: Tensor, v: Tensor) -> Tensor:
    return v / probs * visits.sum() / visits[:, None]


def _across_states(probs: Tensor, visits: Tensor, v: Tensor) -> Tensor:
    share = visits[:, None] / visits.sum()
    return share * probs * (v - (share * probs * v).sum())


def _draw(generator: Generator) -> Case:
    S, V = integer(generator, 1, 5), integer(generator, 2, 6)
    logits, v = torch.randn(2, S, V, generator=generator, dtype=torch.float64)
    visits = torch.rand(S, generator=generator, dtype=torch.float64) + 0.1
    return Case({"probs": logits.softmax(-1), "visits": visits, "v": v})


def _case(probs: list[list[float]], visits: list[float], v: list[list[float]]) -> Case:
    p, n, x = (torch.tensor(a, dtype=torch.float64) for a in (probs, visits, v))
    return Case({"probs": p, "visits": n, "v": x})


PRODUCT = Exercise(
    id="tr-product",
    title="a product without a matrix",
    concept="trpo",
    minutes=8,
    difficulty="warm-up",
    statement=r"""
    A policy is a table of logits, one row for each of $S$ states. `probs` `[S, V]` are its probabilities, and state $s$ was
    visited `visits[s]` times. $F$ is the Fisher matrix of the mean KL over all visits, taken in the $S \cdot V$ logits. Write
    `my_product`: from a vector `v` `[S, V]` return $F v$, `[S, V]`, without building $F$. Predict first: what is $F v$ if
    every row of `v` holds one number $V$ times?
    """,
    solution=my_product,
    cases=(
        _case([[0.5, 0.3, 0.2]], [1.0], [[1.0, 0.0, -1.0]]),
        _case([[0.7, 0.3], [0.1, 0.9]], [3.0, 1.0], [[1.0, 2.0], [0.5, -0.5]]),
        _case([[0.6, 0.4], [0.5, 0.5]], [2.0, 2.0], [[3.0, 3.0], [1.0, 0.0]]),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _no_mean,
            "F is not diagonal: a softmax does not feel a constant, so F maps constants to zero.",
        ),
        Mistake(
            _plain_mean,
            "You subtract the plain mean of a row. Which mean makes the result of a constant zero, and F symmetric?",
        ),
        Mistake(
            given(my_product, visits=torch.ones_like),
            "All states count alike here. The mean is over visits.",
        ),
        Mistake(
            _not_divided,
            "This is the sum over visits. The mean KL divides by their number.",
        ),
        Mistake(
            _not_weighted,
            "A rare action hardly changes the KL. Its row of F is multiplied by its probability.",
        ),
        Mistake(_inverse, "This goes the other way: it divides by the probabilities."),
        Mistake(
            _across_states,
            "You centre over all states together. Each state has a softmax of its own.",
        ),
    ),
    where="In one state F is diag(pi) - pi pi^T. Multiply it out on v, then weigh the states.",
    idea=r"""
    In one state $F v = \pi \odot v - \pi\, (\pi^\top v)$. The scalar $\pi^\top v$ is the mean of $v$ under the
    policy of that state. A mean over all visits gives each state its share of the visits.
    """,
    outline="""
    ```python
    centred = v - ...  # [S, V], each row minus its mean under its own policy
    return ... * probs * centred  # the share of each state, with an axis more
    ```
    """,
    right="Right. A constant gives zero, so F has one direction without curvature for each state, and no inverse.",
)
