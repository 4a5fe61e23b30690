"""How the critic's errors enter the advantages."""

import torch
from torch import Generator, Tensor

from ..draws import integer, uniform
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given, negated


def my_error(errors: Tensor, lam: float, gamma: float) -> Tensor:
    """[T] errors of the critic along one completion -> [T] errors of the advantages."""
    T = len(errors)
    answer = []
    for t in range(T):
        error = -errors[t]
        for k in range(T - t - 1):
            error = error + (1 - lam) * lam**k * gamma ** (k + 1) * errors[t + 1 + k]
        answer.append(error)
    return torch.stack(answer)


def _along(errors: Tensor, own: float, weight) -> Tensor:  # type: ignore[no-untyped-def]
    T = len(errors)
    rows = [
        own * errors[t] + sum(weight(k) * errors[t + 1 + k] for k in range(T - t - 1))
        for t in range(T)
    ]
    return torch.stack(rows)


def _own_only(errors: Tensor, lam: float, gamma: float) -> Tensor:
    return -errors


def _no_telescope(errors: Tensor, lam: float, gamma: float) -> Tensor:
    return _along(errors, -1.0, lambda k: (gamma * lam) ** (k + 1))


def _one_power_more(errors: Tensor, lam: float, gamma: float) -> Tensor:
    return _along(errors, -1.0, lambda k: (1 - lam) * (gamma * lam) ** (k + 1))


def _not_thinned(errors: Tensor, lam: float, gamma: float) -> Tensor:
    return _along(errors, -1.0, lambda k: lam**k * gamma ** (k + 1))


def _one_step(errors: Tensor, lam: float, gamma: float) -> Tensor:
    return _along(errors, -1.0, lambda k: gamma * float(k == 0))


def _later_subtracted(errors: Tensor, lam: float, gamma: float) -> Tensor:
    return _along(errors, -1.0, lambda k: -(1 - lam) * lam**k * gamma ** (k + 1))


def _without_own(errors: Tensor, lam: float, gamma: float) -> Tensor:
    return _along(errors, 0.0, lambda k: (1 - lam) * lam**k * gamma ** (k + 1))


def _critic_goes_on(errors: Tensor, lam: float, gamma: float) -> Tensor:
    T = len(errors)
    beyond = (
        torch.tensor(
            [(gamma * lam) ** (T - 1 - t) for t in range(T)], dtype=errors.dtype
        )
        * gamma
        * errors[-1]
    )
    return my_error(errors, lam, gamma) + beyond


def _discount_late(errors: Tensor, lam: float, gamma: float) -> Tensor:
    return _along(errors, -1.0, lambda k: (1 - lam) * (gamma * lam) ** k)


def _one_letter_for_both(errors: Tensor, lam: float, gamma: float) -> Tensor:
    return my_error(errors, gamma * lam, 1.0)


def _draw(generator: Generator) -> Case:
    errors = torch.randn(
        integer(generator, 1, 9), generator=generator, dtype=torch.float64
    )
    if integer(generator, 0, 4) == 0:
        errors = torch.full_like(errors, 0.5)  # a constant offset
    lam, gamma = uniform(generator, 2).tolist()
    return Case({"errors": errors, "lam": lam, "gamma": gamma})


def _numbers(*x: float | int) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)


ERROR = Exercise(
    id="gae-error",
    title="from the critic's error to the advantage's",
    concept="gae-critic-noise",
    minutes=10,
    difficulty="core",
    statement=r"""
    A critic says $\hat V(s_t) = V(s_t) + e_t$, and there is a discount $\gamma$. Write `my_error`: from the `errors` `[T]`
    along one completion (there is no error after the end, where the value is 0 by definition), `lam` and `gamma` return
    `[T]`, the amount by which each advantage differs from the one that the right critic gives. The rewards are not needed:
    why? Collect the coefficients anew. $\gamma$ and $\lambda$ do not occur in the same powers.
    """,
    solution=my_error,
    cases=(
        Case({"errors": _numbers(0.3, 0.3, 0.3, 0.3), "lam": 0.5, "gamma": 0.9}),
        Case({"errors": _numbers(0.0, 1.0, 0.0, 0.0), "lam": 0.9, "gamma": 0.8}),
        Case({"errors": _numbers(0.2, -0.4, 0.7), "lam": 0.0, "gamma": 0.9}),
        Case({"errors": _numbers(0.2, -0.4, 0.7), "lam": 1.0, "gamma": 0.9}),
        Case({"errors": _numbers(0.2, -0.4, 0.7, 0.5, -0.3), "lam": 0.8, "gamma": 1.0}),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            given(my_error, gamma=1.0),
            "This is right for gamma 1. With a discount the TD error counts the next value with gamma.",
        ),
        Mistake(
            _discount_late,
            "The very next state has gamma in front of it too: it is the next value of the token's own TD error.",
        ),
        Mistake(
            _one_letter_for_both,
            "You put gamma times lambda in the place of lambda everywhere. Follow one value through the two TD errors in "
            "which it stands: once it is a next value.",
        ),
        Mistake(
            negated(my_error),
            "The sign: a critic that expects too much makes the token that follows look worse.",
        ),
        Mistake(
            _own_only,
            "Only the token's own state counts for you, which holds at lambda 1 alone. The next values stand in the "
            "TD errors too.",
        ),
        Mistake(
            _no_telescope,
            "A later value occurs in two neighbouring TD errors, once as promise and once as baseline. You count the "
            "promise and shift it; collect both.",
        ),
        Mistake(
            _one_power_more,
            "The power of lambda is one too high: the very next state has coefficient 1 - lambda, times gamma.",
        ),
        Mistake(
            _not_thinned,
            "A later value also occurs as the baseline of the next TD error, and mostly cancels.",
        ),
        Mistake(
            _one_step,
            "Only the next state counts for you, with full weight: that is lambda 0.",
        ),
        Mistake(
            _later_subtracted,
            "Later errors have the sign of the promise: a critic that expects too much of a later state makes the "
            "token that led there look better.",
        ),
        Mistake(_without_own, "The error of the token's own state is missing."),
        Mistake(
            _critic_goes_on,
            "Your critic errs after the end, too. There the value is 0 and not an opinion.",
        ),
    ),
    where="Write A at the token before the last as two TD errors, and collect what multiplies each value.",
    idea=r"""
    The error of one TD error is $\gamma e_{t+1} - e_t$. The advantage is $\sum_k (\gamma\lambda)^k \delta_{t+k}$.
    In this sum $e_{t+1}$ occurs twice: as the promise of the first TD error and as the start of the second.
    Subtract the two coefficients.
    """,
    outline=r"""
    The token's own error has the coefficient −1. Error $e_{t+1+k}$ has $\gamma^{k+1}\lambda^k$ from one TD error
    and minus $(\gamma\lambda)^{k+1}$ from the next: take out what they share.

    ```python
    for t in range(T):
        error = -errors[t]
        for k in range(...):  # the later states that there are
            error = error + ... * errors[t + 1 + k]
    ```
    """,
    right="Right. Which of these terms depend on the token that is being judged, and so can do harm?",
)
