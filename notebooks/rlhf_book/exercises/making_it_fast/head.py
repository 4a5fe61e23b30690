"""The gradient that a vocabulary head writes down without autograd."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given, negated


def my_head_gradient(
    hidden: Tensor, weight: Tensor, ids: Tensor, upstream: Tensor
) -> Tensor:
    """[N, H], head [V, H], tokens and slopes [N] -> gradient by the hidden states."""
    slope = -torch.softmax(hidden @ weight.T, dim=-1)
    slope[torch.arange(len(ids)), ids] += 1
    return (slope * upstream[:, None]) @ weight


def _picked_alone(
    hidden: Tensor, weight: Tensor, ids: Tensor, upstream: Tensor
) -> Tensor:
    return weight[ids] * upstream[:, None]


def _softmax_alone(
    hidden: Tensor, weight: Tensor, ids: Tensor, upstream: Tensor
) -> Tensor:
    return my_head_gradient(hidden, weight, ids, upstream) - _picked_alone(
        hidden, weight, ids, upstream
    )


def _probability(
    hidden: Tensor, weight: Tensor, ids: Tensor, upstream: Tensor
) -> Tensor:
    p = torch.softmax(hidden @ weight.T, dim=-1).gather(1, ids[:, None])
    return p * my_head_gradient(hidden, weight, ids, upstream)


def _other_axis(
    hidden: Tensor, weight: Tensor, ids: Tensor, upstream: Tensor
) -> Tensor:
    p = torch.softmax(hidden @ weight.T, dim=0)
    return (
        _picked_alone(hidden, weight, ids, upstream) - (p * upstream[:, None]) @ weight
    )


def _uniform(hidden: Tensor, weight: Tensor, ids: Tensor, upstream: Tensor) -> Tensor:
    return (weight[ids] - weight.mean(0)) * upstream[:, None]


def _half_weighted(
    hidden: Tensor, weight: Tensor, ids: Tensor, upstream: Tensor
) -> Tensor:
    return (
        _picked_alone(hidden, weight, ids, upstream)
        - torch.softmax(hidden @ weight.T, dim=-1) @ weight
    )


def _logits(hidden: Tensor, weight: Tensor, ids: Tensor, upstream: Tensor) -> Tensor:
    slope = -torch.softmax(hidden @ weight.T, dim=-1)
    slope[torch.arange(len(ids)), ids] += 1
    return slope * upstream[:, None]


def _any(generator: Generator, N: int, H: int, V: int) -> Case:
    return Case(
        {
            "hidden": torch.randn(N, H, generator=generator, dtype=torch.float64),
            "weight": torch.randn(V, H, generator=generator, dtype=torch.float64),
            "ids": torch.randint(V, (N,), generator=generator),
            "upstream": torch.randn(N, generator=generator, dtype=torch.float64),
        }
    )


def _draw(generator: Generator) -> Case:
    N, H, V = (integer(generator, low, high) for low, high in ((2, 6), (2, 5), (5, 9)))
    return _any(generator, N, H, V)


HEAD = Exercise(
    id="fast-head",
    title="a head without autograd",
    concept="chunked-head",
    minutes=15,
    difficulty="core",
    statement=r"""
    The head turns a hidden state $h_n$ into logits $z_n = W h_n$, and the loss is some function of the log-probs of
    the tokens $o_n$. You are given its slopes $u_n = \partial L / \partial \log \pi(o_n)$. Write
    `my_head_gradient(hidden, weight, ids, upstream)` with $h$ `[N, H]`, $W$ `[V, H]`, $o$ `[N]` and $u$ `[N]`: the
    gradient of $L$ in the hidden states, `[N, H]`, without autograd. Why can it be computed ten rows at a time?
    """,
    solution=my_head_gradient,
    cases=(
        Case(
            {
                "hidden": torch.tensor([[1.0, 0.0], [0.0, 2.0]]),
                "weight": torch.tensor([[1.0, 0.5], [-1.0, 1.0], [0.0, -0.5]]),
                "ids": torch.tensor([0, 2]),
                "upstream": torch.tensor([1.0, -0.5]),
            }
        ),
        _any(torch.Generator().manual_seed(1), 3, 2, 5),
        _any(torch.Generator().manual_seed(2), 4, 3, 7),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            negated(my_head_gradient),
            "The sign is wrong: to raise a token's log-prob, raise its logit and lower all others.",
        ),
        Mistake(
            given(my_head_gradient, upstream=torch.ones_like),
            "The slopes of the loss do not enter: multiply by them, as the chain rule does.",
        ),
        Mistake(
            _picked_alone,
            "Only the token's own logit moves in your answer. The logarithm of the sum over all logits moves, too.",
        ),
        Mistake(
            _softmax_alone,
            "Only the logarithm of the sum is there. The token's own logit is missing.",
        ),
        Mistake(
            _probability,
            "This is the gradient of the probability. The slopes are those in its logarithm.",
        ),
        Mistake(
            _other_axis,
            "The softmax is taken over the rows. It belongs over the vocabulary.",
        ),
        Mistake(
            _uniform,
            "You weigh all tokens of the vocabulary alike, where each counts with its probability.",
        ),
        Mistake(
            _half_weighted,
            "The slope of the loss multiplies one of the two terms only.",
        ),
        Mistake(
            _logits,
            "This is the gradient in the logits. One more product leads to the hidden states.",
        ),
    ),
    where="Try a vocabulary of two tokens, where the two terms can be written out by hand.",
    idea=r"""
    $\partial \log \pi(o) / \partial z = \text{one-hot}(o) - \text{softmax}(z)$. Multiply by the slope $u_n$, and go
    from logits back to the hidden state through $z = W h$.
    """,
    outline="""
    ```python
    slope = ...  # [N, V], minus the softmax
    slope[..., ...] += 1  # at the observed tokens
    return (...) @ ...  # [N, V] times [V, H]
    ```
    """,
    right="Right. Each row needs its own logits and nothing of the others, so they may be made, used and thrown away.",
)
