"""How far are the two labels of a prefix from its value?"""

from torch import Generator

from ..draws import integer, uniform
from ..exercise import Case, Exercise, Mistake


def my_label_errors(V: float, N: int) -> tuple[float, float]:
    """Root mean squared distance from V of the soft and of the hard label."""
    soft = (V * (1 - V) / N) ** 0.5
    one = 1 - (1 - V) ** N  # how often the hard label is 1
    return soft, (one * (1 - V) ** 2 + (1 - one) * V**2) ** 0.5


def _bias_alone(V: float, N: int) -> tuple[float, float]:
    return my_label_errors(V, N)[0], 1 - (1 - V) ** N - V


def _spread_alone(V: float, N: int) -> tuple[float, float]:
    one = 1 - (1 - V) ** N
    return my_label_errors(V, N)[0], (one * (1 - one)) ** 0.5


def _all_right(V: float, N: int) -> tuple[float, float]:
    one = V**N
    return my_label_errors(V, N)[0], (one * (1 - V) ** 2 + (1 - one) * V**2) ** 0.5


def _one_rollout(V: float, N: int) -> tuple[float, float]:
    return (V * (1 - V)) ** 0.5, my_label_errors(V, N)[1]


def _no_root(V: float, N: int) -> tuple[float, float]:
    soft, hard = my_label_errors(V, N)
    return soft**2, hard**2


def _exchanged(V: float, N: int) -> tuple[float, float]:
    soft, hard = my_label_errors(V, N)
    return hard, soft


def _root_of_n_outside(V: float, N: int) -> tuple[float, float]:
    return (V * (1 - V)) ** 0.5 / N, my_label_errors(V, N)[1]


def _draw(generator: Generator) -> Case:
    V = 0.02 + 0.9 * float(uniform(generator, 1))
    return Case({"V": V, "N": integer(generator, 2, 20)})


ROLLOUTS = Exercise(
    id="prm-rollouts",
    title="how wrong is a label?",
    concept="prm-orm",
    minutes=12,
    difficulty="core",
    statement=r"""
    Predict first: with four times as many rollouts, does the hard label come nearer to the value of the prefix, or move away?
    A prefix has the value $V$, and $N$ rollouts go on from it. Write `my_label_errors(V, N)`: the root of the mean squared
    distance from $V$, of the soft label and of the hard one. Then compare $V = 0.3$ and $V = 1/26$ at $N = 4$ and $N = 16$.
    """,
    solution=my_label_errors,
    cases=(
        Case({"V": 0.3, "N": 4}),
        Case({"V": 1 / 26, "N": 16}),
        Case({"V": 0.8, "N": 8}),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _bias_alone,
            "The soft label is right. For the hard one you have its bias; single labels scatter around their mean, too.",
        ),
        Mistake(
            _spread_alone,
            "The soft label is right. For the hard one you have the distance from its own mean, and that mean is not the value.",
        ),
        Mistake(
            _all_right,
            "The hard label is 1 if one rollout is right. Yours asks that all are.",
        ),
        Mistake(
            _one_rollout,
            "Your soft label has the error of a single rollout. It is a mean over several.",
        ),
        Mistake(
            _no_root,
            "These are mean squares. The root is missing.",
        ),
        Mistake(
            _exchanged,
            "Both numbers are right, in the other order: the soft one comes first.",
        ),
        Mistake(
            _root_of_n_outside,
            "The standard deviation of a mean falls more slowly with the number of rollouts.",
        ),
    ),
    where="The hard label is 0 or 1. How often is it 1, and how far from the value is it in each case?",
    idea="""
    The soft label is a mean of $N$ zeros and ones with the mean $V$: its variance is known. The hard label is 1
    unless all rollouts fail; its distance from $V$ is $1 - V$ when it is 1, and $V$ when it is 0.
    """,
    outline="""
    ```python
    soft = (...) ** 0.5
    one = 1 - ...
    return soft, (one * ... + (1 - one) * ...) ** 0.5
    ```
    """,
    right="Right. For which values does a second pair of rollouts make the hard label worse?",
)
