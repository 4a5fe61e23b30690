"""How hard 1/|o| pushes the decision to stop."""

import math

from torch import Generator

from ..draws import uniform
from ..exercise import Case, Exercise, Mistake
from ..mistakes import negated


def my_stop_drift(q: float, advantage: float) -> float:
    """Expected gradient by the logit of stopping; every token ends with q."""
    mean_of_inverse = q * math.log(1 / q) / (1 - q)  # E[1/|o|]
    return advantage * (mean_of_inverse - q)


def _constant_divisor(q: float, advantage: float) -> float:
    return 0.0 * advantage


def _no_score(q: float, advantage: float) -> float:
    return advantage * q * math.log(1 / q) / (1 - q)


def _whatever_the_sign(q: float, advantage: float) -> float:
    return abs(advantage) * (q * math.log(1 / q) / (1 - q) - q)


def _by_the_probability(q: float, advantage: float) -> float:
    return my_stop_drift(q, advantage) / (q * (1 - q))


def _off_by_one(q: float, advantage: float) -> float:
    return advantage * (q * math.log(1 / q) - q)


def _first_token(q: float, advantage: float) -> float:
    later = (q * math.log(1 / q) / (1 - q) - q) / (
        1 - q
    )  # E[1/|o|, given that |o| > 1]
    return advantage * q * (1 - q) * (1 - later)


def _only_stopping(q: float, advantage: float) -> float:
    return advantage * (1 - q) * q * math.log(1 / q) / (1 - q)


def _draw(generator: Generator) -> Case:
    q, a = uniform(generator, 2).tolist()
    return Case({"q": 0.01 + 0.97 * q, "advantage": 4 * a - 2})


STOP_DRIFT = Exercise(
    id="dr-grpo-stop-drift",
    title="the pull on the decision to stop",
    concept="length-bias",
    minutes=15,
    difficulty="core",
    statement=r"""
    After every token a completion stops with probability $q$, the sigmoid of one logit, and goes on otherwise; there is
    no cap. So $P(|o| = n) = (1-q)^{n-1} q$. Whatever it says, its advantage is $A$. Write
    `my_stop_drift(q, advantage)`, the expected gradient by that logit of what GRPO sums for this completion,

    $$\mathbb E\Big[\frac{A}{|o|} \sum_{t=1}^{|o|} \frac{\partial \log \pi(o_t)}{\partial\, \text{logit}}\Big],$$

    in closed form. You need the derivatives of $\log q$ and $\log(1-q)$ by the logit, and
    $\sum_{n \ge 1} x^n / n = -\log(1-x)$.
    """,
    solution=my_stop_drift,
    cases=(
        Case({"q": 0.125, "advantage": -1.0}),
        Case({"q": 0.5, "advantage": 1.0}),
        Case({"q": 0.02, "advantage": 0.3}),
        Case({"q": 0.9, "advantage": -2.0}),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _constant_divisor,
            "Zero is the answer for a constant divisor. With its own length below, a completion that stops early counts "
            "more.",
        ),
        Mistake(
            negated(my_stop_drift),
            "The sign: a completion with a positive advantage learns to stop earlier, not later.",
        ),
        Mistake(
            _no_score,
            "This is the advantage times E[1/|o|]. The score of the decisions is missing: going on has one, too.",
        ),
        Mistake(
            _whatever_the_sign, "The pull turns round with the sign of the advantage."
        ),
        Mistake(
            _by_the_probability,
            "This is the gradient by q itself. The exercise asks for the logit.",
        ),
        Mistake(
            _off_by_one,
            "Check E[1/|o|]: at q near 1 nearly every completion has one token, so it must go to 1.",
        ),
        Mistake(
            _first_token,
            "This is the pull on the first decision alone. Every token after it decides again.",
        ),
        Mistake(
            _only_stopping,
            "You count the token that stops. Those that went on have a score as well.",
        ),
    ),
    where="A completion of n tokens has stopped once and gone on n - 1 times: what is the sum of its gradients, over n?",
    idea=r"""
    A completion of $n$ tokens has the gradients $(1-q)$ once and $-q$ for each of the other $n - 1$: together $1 -
    q\,n$. Divided by $n$ that is $1/n - q$. So only $\mathbb E[1/|o|]$ is needed.
    """,
    outline=r"""
    $\mathbb E[1/|o|] = \sum_n (1-q)^{n-1} q / n$. Take $q/(1-q)$ out, and use the series with $x = 1 - q$:

    ```python
    mean_of_inverse = ...
    return advantage * (mean_of_inverse - ...)
    ```
    """,
    right="Right. Without the log it would be advantage times (q - q): the pull is there because 1/n is convex.",
)
