"""Where SAPO's weight is largest."""

import math

from torch import Generator

from ..draws import uniform
from ..exercise import Case, Exercise, Mistake


def my_peak(tau: float) -> tuple[float, float]:
    """Ratio at which SAPO's weight is largest, and that weight."""

    def rising(w: float) -> float:
        return 1 / w - tau * math.tanh(tau * (w - 1) / 2)  # d log c / d w

    low, high = 1.0, 2.0
    while rising(high) > 0:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) > 0 else (low, middle)
    return low, low / math.cosh(tau * (low - 1) / 2) ** 2


def _slope(tau: float) -> tuple[float, float]:
    return 1.0, 1.0


def _of_the_gate(tau: float) -> tuple[float, float]:
    w, _ = my_peak(tau)
    return w, 4 / tau / (1 + math.exp(-tau * (w - 1)))


def _slope_at_the_peak(tau: float) -> tuple[float, float]:
    w, c = my_peak(tau)
    return w, c / w


def _without_tau(tau: float) -> tuple[float, float]:
    w, _ = my_peak(1.0)
    return w, w / math.cosh(tau * (w - 1) / 2) ** 2


def _back_at_one(tau: float) -> tuple[float, float]:
    low, high = my_peak(tau)[0], 50.0 / tau + 1
    for _ in range(80):
        middle = (low + high) / 2
        above = middle / math.cosh(min(tau * (middle - 1) / 2, 300)) ** 2 > 1
        low, high = (middle, high) if above else (low, middle)
    return low, 1.0


def _distance(tau: float) -> tuple[float, float]:
    w, c = my_peak(tau)
    return w - 1, c


def _draw(generator: Generator) -> Case:
    return Case({"tau": 0.2 + 12 * float(uniform(generator, 1))})


PEAK = Exercise(
    id="gates-peak",
    title="where a soft gate is widest open",
    concept="sapo",
    minutes=15,
    difficulty="core",
    statement=r"""
    SAPO's temperature is a choice. Write `my_peak(tau)`: the ratio at which the weight $c = w
    \mathrm{sech}^2(\tau(w-1)/2)$ is largest, and that largest weight. There is no closed form: the derivative of
    $\log c$ is zero where $1/w = \tau \tanh(\tau (w-1)/2)$, and the left side falls while the right one rises. Then ask: which
    $\tau$ would give a good token at a ratio of 1.2 no more than on fresh samples?
    """,
    solution=my_peak,
    cases=(
        Case({"tau": 1.0}),
        Case({"tau": 1.05}),
        Case({"tau": 4.0}),
        Case({"tau": 10.0}),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _slope,
            "At a ratio of 1 the slope of the objective is largest. The weight on the gradient of log pi has one more "
            "factor.",
        ),
        Mistake(
            _of_the_gate,
            "The ratio is right. The second number is the gate's value there; its gradient is asked for.",
        ),
        Mistake(
            _slope_at_the_peak,
            "The ratio is right. The second number is the slope in the ratio; the gradient of w brings a factor.",
        ),
        Mistake(
            _without_tau,
            "You solve for tau = 1. Both sides of the condition change with tau.",
        ),
        Mistake(
            _distance, "That is the distance from 1; the ratio itself is asked for."
        ),
        Mistake(
            _back_at_one,
            "That is where the weight has come back to 1, to the right of its largest value.",
        ),
    ),
    where="Halve an interval: at w = 1 the left side of the condition is larger, far to the right it is smaller.",
    idea=r"""
    The function $g(w) = 1/w - \tau\tanh(\tau(w-1)/2)$ is positive at 1 and falls. Find an upper end at which it is
    negative (double until it is), then halve: where $g$ in the middle is positive, the peak lies to its right.
    """,
    outline="""
    ```python
    low, high = 1.0, 2.0
    while ...:  # until the peak lies in between
        high *= 2
    for _ in range(80):
        middle = ...
        low, high = ... if ... else ...
    return low, ...  # the weight there: sech is 1 / cosh
    ```
    """,
    right="Right. At tau = 1 the weight is still above 1 at a ratio of 3; for a weight of 1 at 1.2 tau has to be about 4.3.",
)
