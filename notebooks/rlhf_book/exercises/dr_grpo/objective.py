"""What a prompt's success rate is worth to GRPO, at finite G."""

import math

from torch import Generator

from ..draws import integer, uniform
from ..exercise import Case, Exercise, Mistake


def my_objective(p: float, group_size: int) -> float:
    """F(p), F(0) = 0; its derivative is the weight of grad p, sample std."""
    others, total = group_size - 1, 0.0
    for k in range(1, group_size):
        tail = 0.0  # P(Binomial(G - 1, p) >= k)
        for m in range(k, group_size):
            tail += math.comb(others, m) * p**m * (1 - p) ** (others - m)
        total += tail / math.sqrt(k * (group_size - k))
    return math.sqrt(others / group_size) * total


def _population(p: float, group_size: int) -> float:
    return my_objective(p, group_size) * math.sqrt(group_size / (group_size - 1))


def _limit(p: float, group_size: int) -> float:
    return 2 * math.asin(math.sqrt(p))


def _weight(p: float, group_size: int) -> float:
    ways = (
        math.comb(group_size, k) * p**k * (1 - p) ** (group_size - k)
        for k in range(group_size + 1)
    )
    root = sum(way * math.sqrt(k * (group_size - k)) for k, way in enumerate(ways))
    return math.sqrt((group_size - 1) / group_size) * root / (group_size * p * (1 - p))


def _dr_grpo(p: float, group_size: int) -> float:
    return (group_size - 1) / group_size * p


def _others_too_many(p: float, group_size: int) -> float:
    total = 0.0
    for k in range(1, group_size):
        ways = (
            math.comb(group_size, m) * p**m * (1 - p) ** (group_size - m)
            for m in range(k, group_size + 1)
        )
        total += sum(ways) / math.sqrt(k * (group_size - k))
    return math.sqrt((group_size - 1) / group_size) * total


def _more_than_k(p: float, group_size: int) -> float:
    others, total = group_size - 1, 0.0
    for k in range(1, group_size):
        ways = (
            math.comb(others, m) * p**m * (1 - p) ** (others - m)
            for m in range(k + 1, group_size)
        )
        total += sum(ways) / math.sqrt(k * (group_size - k))
    return math.sqrt(others / group_size) * total


def _exactly_k(p: float, group_size: int) -> float:
    others, total = group_size - 1, 0.0
    for k in range(1, group_size):
        total += (
            math.comb(others, k)
            * p**k
            * (1 - p) ** (others - k)
            / math.sqrt(k * (group_size - k))
        )
    return math.sqrt(others / group_size) * total


def _weight_times_p(p: float, group_size: int) -> float:
    return _weight(p, group_size) * p


def _draw(generator: Generator) -> Case:
    return Case(
        {
            "p": 0.01 + 0.98 * float(uniform(generator, 1)),
            "group_size": integer(generator, 2, 20),
        }
    )


OBJECTIVE = Exercise(
    id="dr-grpo-objective",
    title="what GRPO thinks a success rate is worth",
    concept="std-bias",
    minutes=20,
    difficulty="stretch",
    statement=r"""
    With rewards of 0 and 1, GRPO's expected step on a prompt with success rate $p$ is $F_G'(p)\, \nabla p$, with

    $$F_G'(p) = \sqrt{\tfrac{G-1}{G}}\ \mathbb E\Big[\frac{G-1}{\sqrt{(m+1)(G-1-m)}}\Big], \qquad m \sim
    \text{Binomial}(G-2,\, p) .$$

    So it ascends $F_G(p)$, with $F_G(0) = 0$. Integrate, and write `my_objective(p, group_size)`. The integral of one
    term of a binomial is a tail of a binomial with one trial more:
    $\int_0^p \binom{n}{m} x^m (1-x)^{n-m} dx = \frac{1}{n+1} P(\text{Binomial}(n+1, p) > m)$.
    """,
    solution=my_objective,
    cases=(
        Case({"p": 0.5, "group_size": 4}),
        Case({"p": 0.3, "group_size": 2}),
        Case({"p": 0.9, "group_size": 3}),
        Case({"p": 0.03, "group_size": 16}),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _population,
            "Right for the population's standard deviation; the sample's makes the step smaller.",
        ),
        Mistake(
            _limit,
            "This is the limit of an infinite group. At finite G a rare success is often not seen at all.",
        ),
        Mistake(
            _weight,
            "This is the weight itself, the derivative. The exercise asks for its integral from 0.",
        ),
        Mistake(
            _dr_grpo, "This is what Dr. GRPO ascends, without the division by the std."
        ),
        Mistake(
            _others_too_many,
            "Count the trials again: the integral adds one to those of m, and m has G - 2.",
        ),
        Mistake(
            _more_than_k,
            "The tail begins one too late: more than m means at least m + 1, and k is m + 1.",
        ),
        Mistake(_exactly_k, "A tail is needed: k successes or more, not exactly k."),
        Mistake(
            _weight_times_p,
            "The weight depends on p, so its integral is not the weight times p.",
        ),
    ),
    where="For G = 2 the weight does not depend on p: what is its integral? Then try G = 3.",
    idea="""
    Put $k = m + 1$. Each term of the mean is a binomial probability of $G - 2$ trials times a number that does not
    depend on $p$. Its integral is a tail of a binomial of $G - 1$ trials, divided by $G - 1$, and that cancels a
    factor of the numerator.
    """,
    outline="""
    ```python
    total = 0.0
    for k in range(1, group_size):
        tail = ...  # at least k right among G - 1, a sum over m
        total += tail / ...
    return ... * total  # the shrinking factor of the sample std
    ```
    """,
    right="Right. Draw it for G = 2, 8 and 64: only the last comes near the arcsine.",
)
