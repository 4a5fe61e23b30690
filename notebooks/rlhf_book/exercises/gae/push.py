"""The bias that a wrong critic gives to the policy gradient at one state, with lambda 0."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake
from ..mistakes import negated


def my_push(probs: Tensor, next_errors: Tensor) -> Tensor:
    """[V] probabilities, [V] errors after each token -> [V] bias of the gradient."""
    expected = (probs * next_errors).sum()
    return probs * (next_errors - expected)


def _not_centred(probs: Tensor, next_errors: Tensor) -> Tensor:
    return probs * next_errors


def _plain_mean(probs: Tensor, next_errors: Tensor) -> Tensor:
    return probs * (next_errors - next_errors.mean())


def _not_weighted(probs: Tensor, next_errors: Tensor) -> Tensor:
    return next_errors - (probs * next_errors).sum()


def _probability_squared(probs: Tensor, next_errors: Tensor) -> Tensor:
    return probs * my_push(probs, next_errors)


def _own_score_alone(probs: Tensor, next_errors: Tensor) -> Tensor:
    return probs * (1 - probs) * next_errors


def _one_number(probs: Tensor, next_errors: Tensor) -> Tensor:
    return my_push(probs, next_errors).sum()


def _draw(generator: Generator) -> Case:
    V = integer(generator, 2, 7)
    logits, errors = torch.randn(2, V, generator=generator, dtype=torch.float64)
    if integer(generator, 0, 4) == 0:
        errors = torch.full_like(errors, 0.7)  # the same error everywhere
    return Case({"probs": (1.5 * logits).softmax(-1), "next_errors": errors})


def _numbers(*x: float | int) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)


PUSH = Exercise(
    id="gae-push",
    title="where a wrong critic pushes",
    concept="gae-critic-noise",
    minutes=12,
    difficulty="stretch",
    statement=r"""
    One state, `probs` $= \pi(a)$ over $V$ tokens, policy gradient with respect to the logits of that
    state, $\lambda = 0$, $\gamma = 1$. The critic errs by `next_errors` $= e(s'_a)$ after token $a$ and by some
    amount before it. The token that ends the completion has error 0 after it. Write `my_push`: return `[V]`, the
    expected estimate minus the exact gradient $\mathbb E[\nabla \log \pi(a)\, A]$. (The derivative of $\log\pi(a)$ in
    logit $k$ is $[a = k] - \pi(k)$.) The reward and the error before the token need not be known: why?
    """,
    solution=my_push,
    cases=(
        Case(
            {"probs": _numbers(0.5, 0.3, 0.2), "next_errors": _numbers(0.0, 0.4, 0.4)}
        ),
        Case(
            {"probs": _numbers(0.7, 0.2, 0.1), "next_errors": _numbers(0.5, -0.2, 1.0)}
        ),
        Case({"probs": _numbers(0.25, 0.75), "next_errors": _numbers(0.3, 0.3)}),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _not_centred,
            "A critic that is wrong by the same amount everywhere would push here, and it must not: the score has mean "
            "zero.",
        ),
        Mistake(
            _plain_mean,
            "You subtract the plain mean of the errors. Which tokens are drawn how often?",
        ),
        Mistake(
            _not_weighted,
            "A token that is hardly ever drawn is hardly ever pushed: the probability is missing.",
        ),
        Mistake(
            negated(my_push), "The sign: a state that the critic overrates attracts."
        ),
        Mistake(
            _probability_squared,
            "The probability enters twice. It is the chance of drawing the token, once.",
        ),
        Mistake(
            _own_score_alone,
            "You let a token's logit move only when that token is drawn. Every draw moves all logits of the state.",
        ),
        Mistake(_one_number, "You return one number. Each logit has its own bias."),
    ),
    where="Write the sum over drawn tokens a of probability, score in logit k, and error, and separate a = k.",
    idea=r"""
    The estimate errs by $e(s'_a)$ minus the error before the token. The second does not depend on $a$, and the mean
    score is 0. What remains is $\sum_a \pi(a)\, ([a = k] - \pi(k))\, e(s'_a)$: the first part has one term.
    """,
    outline="""
    ```python
    expected = ...  # scalar: the mean of the later errors under the policy
    return probs * (...)
    ```
    """,
    right="Right. The critic expects .4 too much everywhere: does the policy learn to end its completions, or not to?",
)
