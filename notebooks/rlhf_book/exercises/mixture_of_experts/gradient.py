"""The gradient of a router whose weights are not divided by their sum."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake
from ..mistakes import negated


def my_logit_gradient(p: Tensor, picked: Tensor, useful: Tensor) -> Tensor:
    """[E] -> [E]: the derivative of sum over picked p_i useful_i by each logit."""
    value = (p * useful)[picked].sum()
    own = torch.where(picked, useful, 0.0)
    return p * (own - value)


def _picked_only(p: Tensor, picked: Tensor, useful: Tensor) -> Tensor:
    return torch.where(picked, my_logit_gradient(p, picked, useful), 0.0)


def _renormalised(p: Tensor, picked: Tensor, useful: Tensor) -> Tensor:
    g = torch.where(picked, p, 0.0)
    g = g / g.sum()
    return g * (useful - (g * useful).sum())


def _dense(p: Tensor, picked: Tensor, useful: Tensor) -> Tensor:
    return p * (useful - (p * useful).sum())


def _diagonal(p: Tensor, picked: Tensor, useful: Tensor) -> Tensor:
    return torch.where(picked, p * (1 - p) * useful, 0.0)


def _no_p(p: Tensor, picked: Tensor, useful: Tensor) -> Tensor:
    return torch.where(picked, useful, 0.0) - (p * useful)[picked].sum()


def _case(p: list[float], picked: list[bool], useful: list[float]) -> Case:
    return Case(
        {
            "p": torch.tensor(p, dtype=torch.float64),
            "picked": torch.tensor(picked),
            "useful": torch.tensor(useful, dtype=torch.float64),
        }
    )


def _draw(generator: Generator) -> Case:
    size = integer(generator, 3, 9)
    p = torch.randn(size, generator=generator, dtype=torch.float64).softmax(0)
    top = p.topk(integer(generator, 1, size - 1))[1]
    picked = torch.zeros(size, dtype=torch.bool)
    picked[top] = True
    useful = torch.randn(size, generator=generator, dtype=torch.float64)
    return Case({"p": p, "picked": picked, "useful": useful})


GRADIENT = Exercise(
    id="moe-raw-weights",
    title="a router without the division",
    concept="moe",
    minutes=15,
    difficulty="stretch",
    statement=r"""
    A variant: some models do not divide the picked weights by their sum. With $p$ the softmax over *all* logits the layer is
    $y = \sum_{i \in S} p_i f_i$. Let `useful[i]` be the number $v \cdot f_i$, how much expert $i$ helps, with
    $v$ the gradient of the objective, which is maximised, at $y$. Write `my_logit_gradient(p, picked, useful)`: the derivative of $v \cdot y$ with respect to
    every logit, `[E]`, for `p` `[E]`, `picked` `[E]` bool and `useful` `[E]`. Predict first: which experts that are not
    picked get a gradient, and which way?
    """,
    solution=my_logit_gradient,
    cases=(
        _case([0.5, 0.3, 0.2], [True, True, False], [1.0, 0.0, 5.0]),
        _case([0.4, 0.3, 0.2, 0.1], [True, False, False, False], [2.0, 1.0, 1.0, 1.0]),
        _case([0.7, 0.2, 0.1], [True, True, False], [-1.0, 2.0, 3.0]),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _picked_only,
            "You stop at the picked experts. The softmax runs over all logits: what does a larger logit elsewhere do to p?",
        ),
        Mistake(
            _renormalised,
            "That is the layer with the division, as in the chapter. Here the weights sum to less than 1.",
        ),
        Mistake(_dense, "You sum over all experts. Only the picked ones are computed."),
        Mistake(
            _diagonal,
            "Only the diagonal of the softmax's derivative: a logit moves the other weights as well.",
        ),
        Mistake(
            _no_p,
            "A factor is missing: the derivative of p_j by its own logit has p_j in front.",
        ),
        Mistake(negated(my_logit_gradient), "The sign is turned over."),
    ),
    where="The derivative of p_i by z_j is p_i (1[i = j] - p_j). Sum over the picked i, for every j.",
    idea=r"""
    $\partial (v \cdot y) / \partial z_j = \sum_{i \in S} p_i u_i (1[i = j] - p_j)$. The first part is there only if
    $j$ itself is picked. In the second $p_j$ comes out of the sum, and what is left is one number for all $j$.
    """,
    outline="""
    ```python
    value = ...  # scalar: what the picked experts are worth together
    own = torch.where(picked, ..., 0.0)
    return p * (...)
    ```
    """,
    right="Right. Experts that are not picked move by -p_j times the layer's own use: down if the layer helps.",
)
