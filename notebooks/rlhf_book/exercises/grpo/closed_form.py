"""Z-scores of right and wrong, with k of G right."""

from torch import Generator

from ..draws import integer
from ..exercise import Case, Exercise, Mistake


def my_scores(k: int, group_size: int) -> tuple[float, float]:
    """k of G are right -> the z-scores of a right completion and of a wrong one."""
    q = k / group_size
    shrink = (
        (group_size - 1) / group_size
    ) ** 0.5  # sample instead of population standard deviation
    return shrink * ((1 - q) / q) ** 0.5, -shrink * (q / (1 - q)) ** 0.5


def _population_scores(k: int, group_size: int) -> tuple[float, float]:
    q = k / group_size
    return ((1 - q) / q) ** 0.5, -((q / (1 - q)) ** 0.5)


def _grown_scores(k: int, group_size: int) -> tuple[float, float]:
    right, wrong = _population_scores(k, group_size)
    grow = (group_size / (group_size - 1)) ** 0.5
    return grow * right, grow * wrong


def _shrunk_twice(k: int, group_size: int) -> tuple[float, float]:
    right, wrong = _population_scores(k, group_size)
    return right * (group_size - 1) / group_size, wrong * (group_size - 1) / group_size


def _swapped(k: int, group_size: int) -> tuple[float, float]:
    right, wrong = my_scores(k, group_size)
    return wrong, right


def _both_positive(k: int, group_size: int) -> tuple[float, float]:
    right, wrong = my_scores(k, group_size)
    return right, -wrong


def _odds_upside_down(k: int, group_size: int) -> tuple[float, float]:
    right, wrong = my_scores(k, group_size)
    return -wrong, -right


def _no_root(k: int, group_size: int) -> tuple[float, float]:
    q = k / group_size
    return (1 - q) / q, -q / (1 - q)


def _draw_count(generator: Generator) -> Case:
    group_size = integer(generator, 2, 65)
    return Case({"k": integer(generator, 1, group_size), "group_size": group_size})


CLOSED_FORM = Exercise(
    id="grpo-closed-form",
    title="z-scores of right and wrong, in closed form",
    concept="group-zscore-picture",
    minutes=10,
    difficulty="core",
    statement=r"""
    Of $G$ completions $k$ are right (reward 1) and the others wrong (reward 0), $0 < k < G$. Write
    `my_scores(k, group_size)`, which returns two numbers: the z-score of each right completion and of each wrong one,
    with the *sample* standard deviation and without epsilon. Derive a formula with pencil and paper first; no tensor is
    needed.
    """,
    solution=my_scores,
    cases=(
        Case({"k": 1, "group_size": 4}),
        Case({"k": 3, "group_size": 4}),
        Case({"k": 1, "group_size": 2}),
        Case({"k": 2, "group_size": 5}),
        Case({"k": 1, "group_size": 16}),
    ),
    draw=_draw_count,
    mistakes=(
        Mistake(
            _population_scores,
            "Right for the population's standard deviation. The sample's divides by G-1, which makes the spread larger "
            "and the scores a little smaller.",
        ),
        Mistake(
            _grown_scores,
            "The correction for the sample standard deviation is upside down: a larger spread in the denominator "
            "makes scores smaller, not larger.",
        ),
        Mistake(
            _shrunk_twice,
            "The correction for the sample is that of a variance: you need that of a standard deviation.",
        ),
        Mistake(
            _swapped, "The two numbers are swapped: the right completion comes first."
        ),
        Mistake(
            _both_positive,
            "A wrong completion lies below its group's mean: its score is negative.",
        ),
        Mistake(
            _odds_upside_down,
            "The odds are upside down: if a single completion of many is right, should its score be large or small?",
        ),
        Mistake(
            _no_root,
            "Somewhere a square root was lost: the standard deviation of q is the root of q (1 - q).",
        ),
    ),
    where="Write the group's mean as q = k/G; then what is the mean squared distance from it?",
    idea=r"""
    With $q = k/G$ the mean squared distance is $q(1-q)$. The sample variance divides by $G - 1$ instead of $G$: it
    is $\frac{G}{G-1}\, q(1-q)$. A right reward is $1 - q$ above the mean, a wrong one $q$ below.
    """,
    outline="""
    Divide each distance by the root of the sample variance and simplify. Both scores are the same shrinking factor,
    a root of a ratio of $G - 1$ and $G$, times a root of odds:

    ```python
    shrink = (...) ** 0.5
    return shrink * (...) ** 0.5, -shrink * (...) ** 0.5
    ```
    """,
    right="Right. One right completion among many is an outlier: its score grows like the square root of G.",
)
