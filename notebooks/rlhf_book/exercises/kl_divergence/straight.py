"""The value of one estimator with the gradient of another."""

import torch
from torch import Generator, Tensor

from ..draws import any_batch, books_batch
from ..exercise import Case, Exercise, Mistake


def my_straight_through(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """[B, T] -> [B, T]: the value of k3, and the gradient of k2."""
    d = logp - ref_logp
    k2, k3 = d**2 / 2, torch.exp(-d) - 1 + d
    return k2 + (k3 - k2).detach()


def _k3(logp: Tensor, ref_logp: Tensor) -> Tensor:
    d = logp - ref_logp
    return torch.exp(-d) - 1 + d


def _k2(logp: Tensor, ref_logp: Tensor) -> Tensor:
    return (logp - ref_logp) ** 2 / 2


def _the_other_way(logp: Tensor, ref_logp: Tensor) -> Tensor:
    k2, k3 = _k2(logp, ref_logp), _k3(logp, ref_logp)
    return k3 + (k2 - k3).detach()


def _sum(logp: Tensor, ref_logp: Tensor) -> Tensor:
    return _k2(logp, ref_logp) + _k3(logp, ref_logp).detach()


def _detached(logp: Tensor, ref_logp: Tensor) -> Tensor:
    return _k3(logp, ref_logp).detach()


def _k1(logp: Tensor, ref_logp: Tensor) -> Tensor:
    d = logp - ref_logp
    return d + (_k3(logp, ref_logp) - d).detach()


def _weighted(logp: Tensor, ref_logp: Tensor) -> Tensor:
    return _k3(logp, ref_logp) * torch.exp(logp - logp.detach()) + _k2(logp, ref_logp)


def _draw(generator: Generator) -> Case:
    drawn = any_batch(generator)
    return Case({"logp": drawn["logp"], "ref_logp": drawn["old_logp"]})


_BOOK = books_batch()

STRAIGHT = Exercise(
    id="kl-straight-through",
    title="a right value with a right gradient",
    concept="kl-placement",
    minutes=10,
    difficulty="core",
    statement=r"""
    A variant: some libraries offer an estimator whose *value* is $k_3$, so that what is logged is unbiased, and whose
    *gradient* in the loss is that of $k_2$. Write `my_straight_through(logp, ref_logp)` for `[B, T]` log-probs; the
    result is `[B, T]`. The checker compares the value and the gradient with respect to `logp`. You need `detach()`,
    which keeps a value and drops its gradient.
    """,
    solution=my_straight_through,
    cases=(
        Case({"logp": _BOOK["logp"], "ref_logp": _BOOK["ref_logp"]}),
        Case({"logp": torch.tensor([[-1.0]]), "ref_logp": torch.tensor([[-3.0]])}),
        Case({"logp": torch.tensor([[-3.0]]), "ref_logp": torch.tensor([[-1.0]])}),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _k3,
            "This is plain k3: the value is right, and the gradient is that of the other divergence.",
        ),
        Mistake(
            _k2, "This is plain k2: the gradient is right, and the value is biased."
        ),
        Mistake(
            _the_other_way,
            "The roles are exchanged: you have the value of k2 and the gradient of k3.",
        ),
        Mistake(
            _sum,
            "The gradient is right, but the value is the sum of both: what do you have to subtract, without gradient?",
        ),
        Mistake(
            _detached,
            "The value is right, but no gradient is left: this penalty holds nothing.",
        ),
        Mistake(
            _k1,
            "The value is right. The gradient is that of k1, whose mean in the loss is 0.",
        ),
        Mistake(
            _weighted,
            "The ratio belongs to another remedy, the weighted k3. Here only detach() is needed.",
        ),
    ),
    where="x + (y - x).detach() has the value of y. What gradient has it?",
    idea="""
    You have two quantities: one whose gradient you want, one whose value you want. In $x + (y - x)$ the $x$ cancels
    in the value. If the bracket is a constant, what is left of the gradient?
    """,
    outline="""
    ```python
    k2, k3 = ..., ...
    return ... + (... - ...).detach()
    ```
    """,
    right="Right, value and gradient. On fresh samples this is a sound choice; what is missing on old ones?",
    gradient_of="logp",
)
