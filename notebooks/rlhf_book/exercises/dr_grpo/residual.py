"""What a mean over the batch's tokens leaves of the length bias."""

from torch import Generator

from ..draws import integer, uniform
from ..exercise import Case, Exercise, Mistake


def my_residual(q: float, responses: int) -> float:
    """Leading term of E[(1 - q n_i) / S]; S sums all geometric lengths."""
    expected_total = responses / q
    variance = responses * (1 - q) / q**2
    return variance / expected_total**3


def _none(q: float, responses: int) -> float:
    return 0.0


def _per_batch(q: float, responses: int) -> float:
    return q * (1 - q) / responses


def _half(q: float, responses: int) -> float:
    return q * (1 - q) / (2 * responses**2)


def _own_over_batch(q: float, responses: int) -> float:
    return q * (1 - q) / responses**3


def _deviation(q: float, responses: int) -> float:
    return q * (1 - q) ** 0.5 / responses**1.5


def _first_term(q: float, responses: int) -> float:
    return q / responses


def _negative(q: float, responses: int) -> float:
    return -q * (1 - q) / responses**2


def _variance_of_one(q: float, responses: int) -> float:
    return (1 - q) / q**2 / (responses / q) ** 2


def _uncorrected(q: float, responses: int) -> float:
    return q / responses + q * (1 - q) / responses**2


def _draw(generator: Generator) -> Case:
    return Case(
        {
            "q": 0.02 + 0.95 * float(uniform(generator, 1)),
            "responses": integer(generator, 2, 40),
        }
    )


RESIDUAL = Exercise(
    id="dr-grpo-residual",
    title="what a token mean leaves over",
    concept="length-bias",
    minutes=15,
    difficulty="stretch",
    statement=r"""
    All $B$ completions of a batch stop after each token with probability $q$, so the length $n_i$ of one has mean $1/q$
    and variance $(1-q)/q^2$. Under a token mean they are all divided by $S = \sum_i n_i$. The pull on the decision to
    stop, for one completion and per unit of advantage, is

    $$\mathbb E\Big[\frac{1 - q\, n_i}{S}\Big] .$$

    Use symmetry for $\mathbb E[n_i / S]$ and expand $\mathbb E[1/S]$ to second order around $\mathbb E[S]$. Write
    `my_residual(q, responses)`, the leading term that is left.
    """,
    solution=my_residual,
    cases=(
        Case({"q": 0.125, "responses": 16}),
        Case({"q": 0.5, "responses": 2}),
        Case({"q": 0.1, "responses": 8}),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _none,
            "It is small and not zero: the total contains the completion's own length.",
        ),
        Mistake(_per_batch, "One power of the number of completions is missing."),
        Mistake(
            _half,
            "The second derivative of 1/S is 2/S^3: the 1/2 of the expansion cancels it.",
        ),
        Mistake(
            _own_over_batch,
            "One power too many: the total's variance grows with the number of completions.",
        ),
        Mistake(
            _deviation, "The second-order term has the variance in it, not its root."
        ),
        Mistake(
            _first_term,
            "This is the zeroth order of E[1/S]. It cancels against the other part of the expectation.",
        ),
        Mistake(
            _negative,
            "The sign: 1/S is convex, so its mean lies above the inverse of the mean.",
        ),
        Mistake(
            _variance_of_one,
            "Look at the units: the variance of the total belongs over its mean to the third.",
        ),
        Mistake(
            _uncorrected,
            "This is E[1/S], in full to second order. The other part of the expectation has to come off.",
        ),
    ),
    where="By symmetry E[n_i / S] is the same for all completions, and they sum to 1. Then only E[1/S] is left.",
    idea=r"""
    By symmetry $\mathbb E[n_i/S] = 1/B$, so the pull is $\mathbb E[1/S] - q/B$. To second order $\mathbb E[1/S]
    \approx \frac{1}{m} + \frac{\mathrm{Var}(S)}{m^3}$ with $m = \mathbb E[S]$. Which term cancels $q/B$?
    """,
    outline="""
    ```python
    expected_total = ...  # of B lengths
    variance = ...  # of a sum of B independent lengths
    return variance / ...
    ```
    """,
    right="Right. Beside GRPO's pull, which falls with B only once, it is smaller by about the number of completions.",
)
