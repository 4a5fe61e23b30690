"""How many points a criterion may give before a completion that fools it wins."""

from torch import Generator, Tensor, tensor

from ..draws import integer, uniform
from ..exercise import Case, Exercise, Mistake
from ..mistakes import negated


def my_points(honest: Tensor, fooled: Tensor, k: int) -> float:
    """[K] marks of two completions -> the weight of criterion k at which they tie."""
    gained = fooled[k] - honest[k]
    lost = (honest - fooled).sum() + gained  # over all criteria but k
    return float(lost / gained)


def _with_k(honest: Tensor, fooled: Tensor, k: int) -> float:
    return float((honest - fooled).sum() / (fooled[k] - honest[k]))


def _turned(honest: Tensor, fooled: Tensor, k: int) -> float:
    return 1 / my_points(honest, fooled, k)


def _whole_mark(honest: Tensor, fooled: Tensor, k: int) -> float:
    gained = fooled[k] - honest[k]
    return float(((honest - fooled).sum() + gained) / fooled[k])


def _honest_alone(honest: Tensor, fooled: Tensor, k: int) -> float:
    return float((honest.sum() - honest[k]) / (fooled[k] - honest[k]))


def _mean(honest: Tensor, fooled: Tensor, k: int) -> float:
    return my_points(honest, fooled, k) / (len(honest) - 1)


def _losses_alone(honest: Tensor, fooled: Tensor, k: int) -> float:
    lost = (honest - fooled).clamp(min=0).sum()  # criterion k is a gain: left out
    return float(lost / (fooled[k] - honest[k]))


def _draw(generator: Generator) -> Case:
    K = integer(generator, 3, 7)
    k = integer(generator, 0, K)
    honest, fooled = 0.5 + uniform(generator, K), 0.8 * uniform(generator, K)
    honest[k], fooled[k] = fooled[k].clone() + 0.5, 2 + honest[k].clone()
    return Case({"honest": honest, "fooled": fooled, "k": k})


POINTS = Exercise(
    id="judges-points",
    title="how many points are too many",
    concept="rubric-reward",
    minutes=8,
    difficulty="core",
    statement=r"""
    A rubric has $K$ criteria and pays the sum of its marks. A good completion has the marks `honest` `[K]`, another one, which
    fools criterion `k`, the marks `fooled` `[K]`; each mark counts once. Now multiply criterion `k` by a weight, and leave the others as they
    are. Write `my_points(honest, fooled, k)`: the weight at which both completions earn the same. Predict first: a review has
    the marks (1, 1, 0.9, 2), and one that says `yum` once more has (1, 0, 0.9, 3). Is the weight below or above one half?
    """,
    solution=my_points,
    cases=(
        Case(
            {
                "honest": tensor([1.0, 1.0, 0.9, 2.0]).double(),
                "fooled": tensor([1.0, 0.0, 0.9, 3.0]).double(),
                "k": 3,
            }
        ),
        Case(
            {
                "honest": tensor([1.0, 0.5, 0.75]).double(),
                "fooled": tensor([3.0, 0.25, 0.25]).double(),
                "k": 0,
            }
        ),
        Case(
            {
                "honest": tensor([0.5, 1.0, 1.0, 0.25, 1.0]).double(),
                "fooled": tensor([0.75, 2.5, 0.0, 0.25, 0.5]).double(),
                "k": 1,
            }
        ),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _with_k,
            "What the fooled completion gains in criterion k is counted as a loss of the other criteria. Leave k out there.",
        ),
        Mistake(_turned, "That is gain per loss. Asked is the weight of the gain."),
        Mistake(
            negated(my_points),
            "The sign is turned: the fooled completion loses in the other criteria and gains in k.",
        ),
        Mistake(
            _whole_mark,
            "The honest completion has marks in criterion k, too, and the weight raises them as well.",
        ),
        Mistake(
            _honest_alone,
            "The fooled completion earns something in the other criteria, too.",
        ),
        Mistake(_mean, "The rubric pays a sum, so losses are added and not averaged."),
        Mistake(
            _losses_alone,
            "The fooled completion may be better in a criterion other than k as well. Count that, too.",
        ),
    ),
    where="Write down what each completion earns with a weight w on criterion k, and set the two equal.",
    idea="""
    Two differences matter: what the fooled completion gains in criterion k at weight 1, and what it loses in all the
    others together.
    """,
    outline="""
    ```python
    gained = ...  # in criterion k
    lost = ...  # in all criteria but k
    return float(...)
    ```
    """,
    right="Right. Below that weight the fooled completion loses; above it no amount of training on this rubric is safe. Now look for the completion with the lowest such weight in your own rubric.",
)
