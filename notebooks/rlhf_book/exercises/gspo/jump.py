"""How far one token has to move until its whole completion is clipped."""

import math

from torch import Generator

from ..draws import integer, uniform
from ..exercise import Case, Exercise, Mistake


def my_jump(rest: float, n: int, low: float, high: float) -> tuple[float, float]:
    """Log-ratios of one token at which n are clipped: if A > 0, and if A < 0."""
    return n * math.log(1 + high) - rest, n * math.log(1 - low) - rest


def _first_order(rest: float, n: int, low: float, high: float) -> tuple[float, float]:
    return n * high - rest, -n * low - rest


def _no_rest(rest: float, n: int, low: float, high: float) -> tuple[float, float]:
    return n * math.log(1 + high), n * math.log(1 - low)


def _other_sign(rest: float, n: int, low: float, high: float) -> tuple[float, float]:
    return n * math.log(1 + high) + rest, n * math.log(1 - low) + rest


def _of_the_others(rest: float, n: int, low: float, high: float) -> tuple[float, float]:
    return (n - 1) * math.log(1 + high) - rest, (n - 1) * math.log(1 - low) - rest


def _token(rest: float, n: int, low: float, high: float) -> tuple[float, float]:
    return math.log(1 + high), math.log(1 - low)


def _mean_of_the_rest(
    rest: float, n: int, low: float, high: float
) -> tuple[float, float]:
    return n * (math.log(1 + high) - rest), n * (math.log(1 - low) - rest)


def _ratios(rest: float, n: int, low: float, high: float) -> tuple[float, float]:
    up, down = my_jump(rest, n, low, high)
    return math.exp(up), math.exp(down)


def _mirror(rest: float, n: int, low: float, high: float) -> tuple[float, float]:
    up, _ = my_jump(rest, n, low, high)
    return up, -up


def _swapped(rest: float, n: int, low: float, high: float) -> tuple[float, float]:
    up, down = my_jump(rest, n, low, high)
    return down, up


def _draw(generator: Generator) -> Case:
    rest, low, high = (float(uniform(generator, 1)) for _ in range(3))
    arguments = {
        "rest": rest - 0.5,
        "n": integer(generator, 2, 40),
        "low": 0.02 + 0.3 * low,
        "high": 0.02 + 0.3 * high,
    }
    return Case(arguments)


JUMP = Exercise(
    id="gspo-jump",
    title="one token against all the others",
    concept="gspo-objective",
    minutes=5,
    difficulty="warm-up",
    statement=r"""
    A completion has `n` tokens. The log-ratios of all but one add up to `rest` nats. How far does the last one have to
    move until the whole completion loses its gradient? Write `my_jump(rest, n, low, high)`, which returns two log-ratios of that
    token: the one above which a completion of *positive* advantage is clipped, and the one below which a completion
    of *negative* advantage is. Then put in `rest = 0`, the paper's clip range and $n = 100$: would GRPO, with 0.2,
    have clipped that token? And which sign of `rest` makes a right completion safer?
    """,
    solution=my_jump,
    cases=(
        Case({"rest": 0.0, "n": 4, "low": 0.2, "high": 0.2}),
        Case({"rest": 0.1, "n": 10, "low": 0.03, "high": 0.04}),
        Case({"rest": -0.3, "n": 25, "low": 0.2, "high": 0.28}),
        Case({"rest": 0.05, "n": 2, "low": 0.1, "high": 0.3}),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _first_order,
            "Nearly, for a narrow clip range: you take high for a log-ratio. The bounds are bounds of the ratio "
            "itself, and the mean is one of logarithms.",
        ),
        Mistake(_no_rest, "The other tokens have moved too, by `rest` in all."),
        Mistake(
            _other_sign,
            "The sign of `rest`: if the others have already gone up, does the last one need more or less?",
        ),
        Mistake(
            _of_the_others, "The mean is over all n tokens, the last one included."
        ),
        Mistake(
            _token,
            "That is the clip of a single token, as in GRPO. Here the mean of all log-ratios is compared with the "
            "clip range.",
        ),
        Mistake(
            _mean_of_the_rest,
            "`rest` is the sum of the others' log-ratios, and you use it as if it were their mean.",
        ),
        Mistake(_ratios, "These are ratios. Log-ratios are asked for, in nats."),
        Mistake(
            _mirror,
            "The two bounds are not mirror images: the second comes from `low`, and the logarithm is steeper there.",
        ),
        Mistake(
            _swapped,
            "The two are exchanged: which side of the clip range is flat for a positive advantage?",
        ),
    ),
    where="Write down the mean of the n log-ratios, and set its exponential equal to a bound.",
    idea=r"""
    With $\delta$ the log-ratio of the last token, $s = \exp\big((\text{rest} + \delta)/n\big)$. For $A > 0$ the
    clip acts above $1 + \text{high}$, for $A < 0$ below $1 - \text{low}$. Take the logarithm of $s = $ bound and
    solve for $\delta$.
    """,
    outline="""
    ```python
    return n * ... - rest, ...  # the upper edge, then the lower one
    ```
    """,
    right="Right. With the paper's range, 100 tokens and the others at rest the answer is 0.04 nats, a ratio of 1.04: "
    "GRPO would have kept that token.",
)
