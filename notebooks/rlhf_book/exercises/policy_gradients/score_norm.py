"""How long the score of a completion is, and why long completions are noisy."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake


def my_score_norm(probs: Tensor) -> Tensor:
    """[T, V] probabilities at each token -> scalar: the mean squared norm."""
    return (1 - (probs**2).sum(-1)).sum()


def _per_token(probs: Tensor) -> Tensor:
    return my_score_norm(probs) / len(probs)


def _entropy(probs: Tensor) -> Tensor:
    return -(probs * probs.log()).sum()


def _chance_of_a_repeat(probs: Tensor) -> Tensor:
    return (probs**2).sum()


def _not_squared(probs: Tensor) -> Tensor:
    return my_score_norm(probs).sqrt()


def _aligned(probs: Tensor) -> Tensor:
    return (1 - (probs**2).sum(-1)).sqrt().sum() ** 2


def _own_logit_alone(probs: Tensor) -> Tensor:
    return (probs * (1 - probs) ** 2).sum()


def _of_the_likeliest(probs: Tensor) -> Tensor:
    return (1 - probs.amax(-1)).sum()


def _not_weighted(probs: Tensor) -> Tensor:
    V = probs.shape[-1]
    return ((torch.eye(V, dtype=probs.dtype) - probs[:, None]) ** 2).sum() / V


def _draw(generator: Generator) -> Case:
    T, V = integer(generator, 1, 6), integer(generator, 2, 6)
    logits = torch.randn(T, V, generator=generator, dtype=torch.float64)
    return Case({"probs": (2 * logits).softmax(-1)})


def _rows(*rows: list[float]) -> Case:
    return Case({"probs": torch.tensor(rows, dtype=torch.float64)})


SCORE_NORM = Exercise(
    id="pg-score-norm",
    title="how long is the score of a completion?",
    concept="policy-gradient",
    minutes=10,
    difficulty="core",
    statement=r"""
    A completion has $T$ tokens. Token $t$ is drawn from row $t$ of `probs` `[T, V]`, whatever came before, and each
    row has logits of its own. Write `my_score_norm`: the mean of $\lVert \nabla \log \pi(o) \rVert^2$, the gradient
    taken with respect to all logits. (The derivative of $\log \pi(a)$ in logit $k$ is $[a = k] - \pi(k)$.) Then let
    the completion be twice as long: what happens to the noise of $R\, \nabla \log \pi(o)$?
    """,
    solution=my_score_norm,
    cases=(
        _rows([0.5, 0.5], [0.9, 0.1]),
        _rows([0.2, 0.3, 0.5]),
        _rows([0.98, 0.01, 0.01], [0.25, 0.5, 0.25], [0.4, 0.4, 0.2]),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _per_token,
            "This is the mean over tokens. The score of a completion is the sum of theirs.",
        ),
        Mistake(
            _entropy,
            "This is the entropy. It has the same zeros and is another number.",
        ),
        Mistake(
            _chance_of_a_repeat,
            "A certain token has the score 0, and yours counts most there.",
        ),
        Mistake(_not_squared, "You took a root. The exercise asks for the square."),
        Mistake(
            _aligned,
            "You add up lengths. Each token has logits of its own: at what angle do two of the scores stand?",
        ),
        Mistake(
            _own_logit_alone,
            "You count the logit of the sampled token alone. The others move down.",
        ),
        Mistake(
            _of_the_likeliest,
            "This is the chance of not drawing the likeliest token. What of the others?",
        ),
        Mistake(
            _not_weighted,
            "You average over tokens as if they were equally likely.",
        ),
    ),
    where="For one token expand the square of ([a = k] - pi(k)), sum over k, and average over the sampled a.",
    idea=r"""
    For one token the squared norm is $(1 - \pi(a))^2 + \sum_{k \ne a} \pi(k)^2$. Expand the first square: you get
    $1 - 2\pi(a) + \sum_k \pi(k)^2$. Now take its mean over $a$. And what is the norm of the whole completion, if
    every token has logits of its own?
    """,
    outline=r"""
    The mean of $\pi(a)$ over a sampled $a$ is $\sum_a \pi(a)^2$. With that each token's number is made of 1 and of
    the sum of squares of its row:

    ```python
    of_token = ...  # [T], from probs**2 and nothing else
    return of_token.sum()
    ```
    """,
    right=(
        "Right. Surprises make noise: the mean squared score grows with every token that is not certain, and so does the "
        "noise of a reward that multiplies all of them."
    ),
)
