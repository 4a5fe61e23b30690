"""The error bound of the surrogate for a discount and a length."""

from torch import Generator

from ..draws import integer
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given


def my_bound(alpha: float, A_max: float, gamma: float, T: int) -> float:
    """Largest TV and |A|, discount, tokens -> bound on |J(pi) - J(old) - L|."""
    return 4 * A_max * alpha * sum(gamma**t * (1 - (1 - alpha) ** t) for t in range(T))


def _to_first_order(alpha: float, A_max: float, gamma: float, T: int) -> float:
    return 4 * A_max * alpha**2 * sum(t * gamma**t for t in range(T))


def _from_one(alpha: float, A_max: float, gamma: float, T: int) -> float:
    return (
        4
        * A_max
        * alpha
        * sum(gamma**t * (1 - (1 - alpha) ** (t + 1)) for t in range(T))
    )


def _without_end(alpha: float, A_max: float, gamma: float, T: int) -> float:
    return (
        4 * A_max * alpha * (1 / (1 - gamma) - 1 / (1 - gamma * (1 - alpha)))
        if gamma < 1
        else float("inf")
    )


def _half(alpha: float, A_max: float, gamma: float, T: int) -> float:
    return my_bound(alpha, A_max, gamma, T) / 2


def _still_together(alpha: float, A_max: float, gamma: float, T: int) -> float:
    return 4 * A_max * alpha * sum(gamma**t * (1 - alpha) ** t for t in range(T))


def _draw(generator: Generator) -> Case:
    alpha, A, gamma = (integer(generator, 1, 100) / 100 for _ in range(3))
    return Case(
        {
            "alpha": alpha,
            "A_max": 2 * A,
            "gamma": 0.5 + gamma / 2,
            "T": integer(generator, 2, 30),
        }
    )


BOUND = Exercise(
    id="tr-bound",
    title="the bound before it is rounded up",
    concept="trpo",
    minutes=10,
    difficulty="core",
    statement=r"""
    The chapter bounds the chance that two policies have parted before token $t$ by $1 - (1 - \alpha)^t$ and then rounds that up to
    $t \alpha$. Write `my_bound`: the bound on $\lvert J(\pi) - J(\pi_\text{old}) - L(\pi) \rvert$ *without* that rounding, for completions of
    `T` tokens ($t = 0, \dots, T-1$), discount `gamma` (1 is allowed), largest total variation `alpha` and largest advantage
    `A_max`. Predict first: for $\alpha = 0.1$, $T = 1000$, $\gamma = 1$, is it smaller by a factor of 2, 50 or 1000?
    """,
    solution=my_bound,
    cases=(
        Case({"alpha": 0.1, "A_max": 1.0, "gamma": 1.0, "T": 3}),
        Case({"alpha": 0.5, "A_max": 2.0, "gamma": 0.9, "T": 10}),
        Case({"alpha": 0.1, "A_max": 1.0, "gamma": 1.0, "T": 1000}),
    ),
    draw=_draw,
    mistakes=(
        Mistake(_to_first_order, "This is the rounded form, with t alpha."),
        Mistake(
            given(my_bound, T=lambda T: T + 1),
            "That is one token too many: t runs from 0 to T - 1.",
        ),
        Mistake(
            _from_one,
            "Before the first token nothing has parted: at t = 0 the chance is 0.",
        ),
        Mistake(given(my_bound, gamma=1.0), "The discount is missing."),
        Mistake(
            _without_end, "This is the sum without end. Completions have T tokens."
        ),
        Mistake(
            _half,
            "Half of it: both factors of 2 are needed, one of the mean, one of the advantage.",
        ),
        Mistake(_still_together, "This is the chance that they have NOT parted."),
    ),
    where="Each token costs gamma^t times twice the distance of the states times 2 alpha A_max.",
    idea=r"""
    Three factors for each token $t$: the discount; the distance of the state distributions, at most $2\,(1 -
    (1-\alpha)^t)$; and what a wrong state costs at most, $2 \alpha A_{\max}$. The constants come out of the sum.
    """,
    outline="""
    ```python
    return 4 * ... * sum(... for t in range(T))  # nothing is parted before the first token
    ```

    Check $t = 0$: what does the first token add?
    """,
    right=(
        "Right. For alpha = 0.1 and a thousand tokens it is smaller by a factor of about 50, since a chance is at most 1, and still far above any gain."
    ),
)
