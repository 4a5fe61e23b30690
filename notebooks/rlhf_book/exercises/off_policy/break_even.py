"""From how many completions on an unbiased estimate is the better one."""

from torch import Generator

from ..draws import uniform
from ..exercise import Case, Exercise, Mistake


def my_break_even(bias: float, noise: float, exact_noise: float) -> float:
    """The batch size from which the unbiased estimate has the smaller mean square."""
    return (exact_noise**2 - noise**2) / bias**2


def _linear(bias: float, noise: float, exact_noise: float) -> float:
    return (exact_noise - noise) / bias


def _of_the_difference(bias: float, noise: float, exact_noise: float) -> float:
    return ((exact_noise - noise) / bias) ** 2


def _plain_bias(bias: float, noise: float, exact_noise: float) -> float:
    return (exact_noise**2 - noise**2) / bias


def _sum(bias: float, noise: float, exact_noise: float) -> float:
    return (exact_noise**2 + noise**2) / bias**2


def _noise_alone(bias: float, noise: float, exact_noise: float) -> float:
    return exact_noise**2 / bias**2


def _root(bias: float, noise: float, exact_noise: float) -> float:
    return my_break_even(bias, noise, exact_noise) ** 0.5


def _upside_down(bias: float, noise: float, exact_noise: float) -> float:
    return 1 / my_break_even(bias, noise, exact_noise)


def _case(bias: float, noise: float, exact_noise: float) -> Case:
    return Case({"bias": bias, "noise": noise, "exact_noise": exact_noise})


def _draw(generator: Generator) -> Case:
    a, b, c = uniform(generator, 3).tolist()
    return _case(0.05 + a, 0.5 + 3 * b, 0.7 + 3 * b + 5 * c)


BREAK_EVEN = Exercise(
    id="off-break-even",
    title="when does exactness pay?",
    concept="off-policy-bias-noise",
    minutes=10,
    difficulty="core",
    statement=r"""
    Predict from the medians in the table of section 5: at 0.6 nats, is the product better than a truncated token weight for a batch of
    64 completions? For one of 1024? Then write `my_break_even(bias, noise, exact_noise)`. The biased estimate has norm of bias
    `bias` and, from one completion, the standard deviation `noise`; the unbiased one has `exact_noise`, which is larger. A batch
    averages $n$ independent completions. The result is the $n$ at which both have the same mean squared distance from
    $\nabla J$; it need not be a whole number.
    """,
    solution=my_break_even,
    cases=(_case(0.5, 3.0, 9.0), _case(0.1, 1.0, 1.1), _case(1.0, 2.0, 3.0)),
    draw=_draw,
    mistakes=(
        Mistake(
            _linear,
            "You compare standard deviations. Which quantity adds up over independent samples?",
        ),
        Mistake(
            _of_the_difference,
            "The square of a difference is not the difference of the squares.",
        ),
        Mistake(_plain_bias, "The mean squared distance holds the bias squared."),
        Mistake(
            _sum,
            "You add both variances. Set the two mean squared distances equal and sort by n.",
        ),
        Mistake(
            _noise_alone,
            "The biased estimate is noisy, too: its own variance has to come off.",
        ),
        Mistake(
            _root, "You have taken a root: the variance of a mean falls with n itself."
        ),
        Mistake(
            _upside_down,
            "Turned over: a smaller bias should need more samples to be worth removing.",
        ),
    ),
    where="Mean squared distance of an estimate from n samples: bias squared plus variance over n. Set two of them equal.",
    idea=r"""
    Mean squared distance with $n$ completions: $\text{bias}^2 + \text{noise}^2/n$ for the biased one,
    $\text{exact\_noise}^2/n$ for the other. Set them equal, and multiply by $n$.
    """,
    outline="""
    The bias's square times $n$ is then a difference of two variances. Divide: which one stands first, so that $n$
    is positive?
    """,
    right="Right. In the normal model of the depth the product's variance grows like e^v, v the tokens times their squared spread: what does that say about long completions?",
)
