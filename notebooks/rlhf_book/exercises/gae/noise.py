"""The variance that independent noise in the critic adds to an advantage."""

from torch import Generator

from ..draws import integer, uniform
from ..exercise import Case, Exercise, Mistake


def my_noise(sigma: float, lam: float, later: int) -> tuple[float, float]:
    """Noise, lambda, later states -> variance of the error, the later states' part."""
    harmful = 0.0
    for k in range(later):
        harmful += ((1 - lam) * lam**k * sigma) ** 2
    return sigma**2 + harmful, harmful


def _coefficients_not_squared(
    sigma: float, lam: float, later: int
) -> tuple[float, float]:
    harmful = sum((1 - lam) * lam**k * sigma**2 for k in range(later)) + 0.0
    return sigma**2 + harmful, harmful


def _first_factor_not_squared(
    sigma: float, lam: float, later: int
) -> tuple[float, float]:
    harmful = sum((1 - lam) * (lam**k * sigma) ** 2 for k in range(later)) + 0.0
    return sigma**2 + harmful, harmful


def _standard_deviation(sigma: float, lam: float, later: int) -> tuple[float, float]:
    total, harmful = my_noise(sigma, lam, later)
    return total**0.5, harmful**0.5


def _shared_noise(sigma: float, lam: float, later: int) -> tuple[float, float]:
    weight = sum((1 - lam) * lam**k for k in range(later)) + 0.0
    return (sigma * (weight - 1)) ** 2, (sigma * weight) ** 2


def _endless(sigma: float, lam: float, later: int) -> tuple[float, float]:
    harmful = sigma**2 * (1 - lam) / (1 + lam)
    return sigma**2 + harmful, harmful


def _swapped(sigma: float, lam: float, later: int) -> tuple[float, float]:
    total, harmful = my_noise(sigma, lam, later)
    return harmful, total


def _own_is_harmful(sigma: float, lam: float, later: int) -> tuple[float, float]:
    total, _ = my_noise(sigma, lam, later)
    return total, sigma**2


def _one_power_more(sigma: float, lam: float, later: int) -> tuple[float, float]:
    harmful = sum(((1 - lam) * lam ** (k + 1) * sigma) ** 2 for k in range(later)) + 0.0
    return sigma**2 + harmful, harmful


def _draw(generator: Generator) -> Case:
    sigma, lam = uniform(generator, 2).tolist()
    return Case({"sigma": 0.1 + sigma, "lam": lam, "later": integer(generator, 0, 12)})


NOISE = Exercise(
    id="gae-noise",
    title="noise in the critic, noise in the advantage",
    concept="gae-critic-noise",
    minutes=8,
    difficulty="core",
    statement=r"""
    Let the critic's errors be independent from state to state, each with mean 0 and
    standard deviation `sigma`. A token has `later` further states of its completion after its own. Write `my_noise`:
    return two numbers, the variance of the error of this token's advantage, and the part of it that comes from the
    later states (the part that the choice of the token influences). $\gamma = 1$.
    """,
    solution=my_noise,
    cases=(
        Case({"sigma": 0.2, "lam": 0.5, "later": 3}),
        Case({"sigma": 0.5, "lam": 0.0, "later": 4}),
        Case({"sigma": 0.5, "lam": 1.0, "later": 4}),
        Case({"sigma": 1.5, "lam": 0.9, "later": 0}),
        Case({"sigma": 1.5, "lam": 0.9, "later": 7}),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _coefficients_not_squared,
            "The variance of c times a noise is c squared times its variance.",
        ),
        Mistake(
            _first_factor_not_squared,
            "The whole coefficient has to be squared, the factor 1 - lambda too.",
        ),
        Mistake(
            _standard_deviation,
            "These are standard deviations. Asked for are variances.",
        ),
        Mistake(
            _shared_noise,
            "You add the coefficients before squaring, as for one error that all states share. Here the errors are "
            "independent.",
        ),
        Mistake(
            _endless,
            "This is the limit of a completion without an end. This token has only a few states after it.",
        ),
        Mistake(_swapped, "The two numbers are swapped: the total comes first."),
        Mistake(
            _own_is_harmful,
            "The second number is the noise of the token's own state. That one is there before the token is chosen.",
        ),
        Mistake(
            _one_power_more,
            "The power of lambda is one too high: the very next state has coefficient 1 - lambda.",
        ),
    ),
    where="Start from the coefficients of the errors, one for each state, and add up variances.",
    idea=r"""
    For $\gamma = 1$ the errors enter with the coefficients $-1$ (its own) and $(1-\lambda)\lambda^k$ (the $k$-th
    later state, from $k = 0$). Independent errors: the variance of a sum is the sum of the squared coefficients
    times $\sigma^2$.
    """,
    outline="""
    ```python
    harmful = 0.0
    for k in range(later):
        harmful += (...) ** 2
    return ... + harmful, harmful  # the own state's error is the same for every token
    ```
    """,
    right="Right. At which lambda is the harmful part largest, and what is the total there?",
)
