"""What independent noise on every token does to three averages of ratios."""

import math

from torch import Generator

from ..draws import integer, uniform
from ..exercise import Case, Exercise, Mistake


def my_noise(sigma: float, n: int) -> tuple[float, float, float]:
    """Variances: product of n ratios, arithmetic mean, log of the geometric mean."""
    of_one = math.exp(sigma**2) - 1
    of_the_product = math.exp(n * sigma**2) - 1
    return of_the_product, of_one / n, sigma**2 / n


def _logs(sigma: float, n: int) -> tuple[float, float, float]:
    return n * sigma**2, sigma**2 / n, sigma**2 / n


def _log_of_the_product(sigma: float, n: int) -> tuple[float, float, float]:
    return n * sigma**2, (math.exp(sigma**2) - 1) / n, sigma**2 / n


def _product_of_variances(sigma: float, n: int) -> tuple[float, float, float]:
    product, mean, log = my_noise(sigma, n)
    return (math.exp(sigma**2) - 1) ** n, mean, log


def _sums(sigma: float, n: int) -> tuple[float, float, float]:
    product, mean, log = my_noise(sigma, n)
    return product, mean * n * n, log


def _no_shrinking(sigma: float, n: int) -> tuple[float, float, float]:
    product, mean, log = my_noise(sigma, n)
    return product, mean * n, log * n


def _squared_length(sigma: float, n: int) -> tuple[float, float, float]:
    product, mean, log = my_noise(sigma, n)
    return product, mean / n, log / n


def _deviations(sigma: float, n: int) -> tuple[float, float, float]:
    product, mean, log = my_noise(sigma, n)
    return math.sqrt(product), math.sqrt(mean), math.sqrt(log)


def _second_moments(sigma: float, n: int) -> tuple[float, float, float]:
    product, mean, log = my_noise(sigma, n)
    return product + 1, mean + 1 / n, log


def _no_correction(sigma: float, n: int) -> tuple[float, float, float]:
    """Log-ratios of mean 0: every variance is then that of a larger ratio."""
    product, mean, log = my_noise(sigma, n)
    return product * math.exp(n * sigma**2), mean * math.exp(sigma**2), log


def _draw(generator: Generator) -> Case:
    sigma = 0.1 + 0.4 * float(uniform(generator, 1))
    return Case({"sigma": sigma, "n": integer(generator, 1, 33)})


NOISE = Exercise(
    id="gspo-noise",
    title="three averages of noisy ratios",
    concept="ratio-variance",
    minutes=15,
    difficulty="core",
    statement=r"""
    The $n$ token ratios of a completion are independent and log-normal: $\log w_t$ is normal with standard deviation
    $\sigma$, and its mean is such that $\mathbb E[w_t] = 1$, as it is for any ratio under its sampler. Write
    `my_noise(sigma, n)`, which returns three *variances*: that of the product $\prod_t w_t$, that of the arithmetic
    mean $\frac1n \sum_t w_t$, and that of the logarithm of the geometric mean. Use $\mathbb E[e^X] = e^{m + v/2}$ for
    a normal $X$ of mean $m$ and variance $v$. Then try $\sigma = 0.05$ with $n = 10$, $100$ and $1000$.
    """,
    solution=my_noise,
    cases=(
        Case({"sigma": 0.2, "n": 5}),
        Case({"sigma": 0.3, "n": 1}),
        Case({"sigma": 0.5, "n": 12}),
        Case({"sigma": 0.1, "n": 32}),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _logs,
            "These are variances of logarithms throughout. Only the third is asked for in logs: the first two are of "
            "the ratios themselves.",
        ),
        Mistake(
            _log_of_the_product,
            "Your first number is the variance of the product's logarithm. The product itself is log-normal: what is "
            "the mean of its square?",
        ),
        Mistake(
            _product_of_variances,
            "The variance of a product is not the product of variances: what multiplies are the second moments of the "
            "independent factors.",
        ),
        Mistake(
            _sums,
            "Your second number belongs to the sum of the ratios. The mean divides the sum by n.",
        ),
        Mistake(
            _no_shrinking,
            "The means do not shrink with n in your answer: n independent terms are averaged.",
        ),
        Mistake(
            _squared_length,
            "Too small by a factor of n: a variance of a sum is n times one, divided by n twice.",
        ),
        Mistake(
            _deviations,
            "These are standard deviations. The exercise asks for variances.",
        ),
        Mistake(
            _second_moments,
            "A variance is the mean of the square minus the square of the mean, which is 1 here.",
        ),
        Mistake(
            _no_correction,
            "Your log-ratios have mean 0, so that the ratios average more than 1. Under its sampler the mean of a "
            "ratio is 1: which mean must the logarithm have?",
        ),
    ),
    where="Start with n = 1, where the product and the arithmetic mean are one and the same ratio.",
    idea=r"""
    $\mathbb E[w] = 1$ forces the mean of $\log w$ to be $-\sigma^2/2$. The log of a product of $n$ is normal with
    variance $n\sigma^2$, and $\mathbb E[w^2]$ follows from the rule with $2X$. Means of independent numbers have a
    variance $n$ times smaller.
    """,
    outline="""
    ```python
    of_one = math.exp(...) - 1  # E[w^2] - 1
    of_the_product = math.exp(...) - 1  # the same rule, the variance of n logs
    return of_the_product, of_one / ..., ...
    ```
    """,
    right="Right. One of the three explodes with the length, and it is the only one that is exact.",
)
