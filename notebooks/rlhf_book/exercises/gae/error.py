"""How the critic's errors enter the advantages."""

import torch
from torch import Generator, Tensor

from ..draws import integer, uniform
from ..exercise import Case, Exercise, Mistake


def my_error(errors: Tensor, lam: float) -> Tensor:
    """[T] errors of the critic along one response -> [T] errors of the advantages."""
    T = len(errors)
    answer = []
    for t in range(T):
        later = sum((1 - lam) * lam**k * errors[t + 1 + k] for k in range(T - t - 1))
        answer.append(later - errors[t])
    return torch.stack(answer)


def _along(errors: Tensor, own: float, weight) -> Tensor:  # type: ignore[no-untyped-def]
    T = len(errors)
    rows = [
        own * errors[t] + sum(weight(k) * errors[t + 1 + k] for k in range(T - t - 1))
        for t in range(T)
    ]
    return torch.stack(rows)


def _wrong_sign(errors: Tensor, lam: float) -> Tensor:
    return -my_error(errors, lam)


def _own_only(errors: Tensor, lam: float) -> Tensor:
    return -errors


def _no_telescope(errors: Tensor, lam: float) -> Tensor:
    return _along(errors, -1.0, lambda k: lam ** (k + 1))


def _one_power_more(errors: Tensor, lam: float) -> Tensor:
    return _along(errors, -1.0, lambda k: (1 - lam) * lam ** (k + 1))


def _not_thinned(errors: Tensor, lam: float) -> Tensor:
    return _along(errors, -1.0, lambda k: lam**k)


def _one_step(errors: Tensor, lam: float) -> Tensor:
    return _along(errors, -1.0, lambda k: float(k == 0))


def _later_subtracted(errors: Tensor, lam: float) -> Tensor:
    return _along(errors, -1.0, lambda k: -(1 - lam) * lam**k)


def _without_own(errors: Tensor, lam: float) -> Tensor:
    return _along(errors, 0.0, lambda k: (1 - lam) * lam**k)


def _critic_goes_on(errors: Tensor, lam: float) -> Tensor:
    T = len(errors)
    beyond = (
        torch.tensor([lam ** (T - 1 - t) for t in range(T)], dtype=errors.dtype)
        * errors[-1]
    )
    return my_error(errors, lam) + beyond


def _draw(generator: Generator) -> Case:
    errors = torch.randn(
        integer(generator, 1, 9), generator=generator, dtype=torch.float64
    )
    if integer(generator, 0, 4) == 0:
        errors = torch.full_like(errors, 0.5)  # a constant offset
    return Case({"errors": errors, "lam": uniform(generator, 1).item()})


def _numbers(*x: float | int) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)


ERROR = Exercise(
    id="gae-error",
    title="from the critic's error to the advantage's",
    concept="gae-critic-noise",
    minutes=10,
    difficulty="core",
    statement=r"""
    A critic says $\hat V(s_t) = V(s_t) + e_t$. Write `my_error`: from the `errors` `[T]` along one response (with
    $\gamma = 1$, and no error after the end, where the value is 0 by definition) and `lam` return `[T]`, the amount by
    which each advantage differs from the one that the right critic gives. Do it without a reward: the rewards cancel.
    """,
    solution=my_error,
    cases=(
        Case({"errors": _numbers(0.3, 0.3, 0.3, 0.3), "lam": 0.5}),
        Case({"errors": _numbers(0.0, 1.0, 0.0, 0.0), "lam": 0.9}),
        Case({"errors": _numbers(0.2, -0.4, 0.7), "lam": 0.0}),
        Case({"errors": _numbers(0.2, -0.4, 0.7), "lam": 1.0}),
        Case({"errors": _numbers(0.2, -0.4, 0.7, 0.5, -0.3), "lam": 0.8}),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _wrong_sign,
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
            "The power of lambda is one too high: the very next state has coefficient 1 - lambda.",
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
    right="Right. Which of these terms depend on the token that is being judged, and so can do harm?",
)
