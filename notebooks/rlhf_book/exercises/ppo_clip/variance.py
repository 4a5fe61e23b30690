"""What one importance-weighted sample is worth: its variance, exactly."""

import torch
from torch import Generator, Tensor

from ..draws import integer, uniform
from ..exercise import Case, Exercise, Mistake


def my_variance(old: Tensor, new: Tensor, advantages: Tensor) -> Tensor:
    """Three times [K], one number an action -> scalar: variance of r A under old."""
    ratio = new / old
    mean = (old * ratio * advantages).sum()
    square = (old * (ratio * advantages) ** 2).sum()
    return square - mean**2


def _from_new(old: Tensor, new: Tensor, advantages: Tensor) -> Tensor:
    mean = (new * advantages).sum()
    return (new * advantages**2).sum() - mean**2


def _second_moment(old: Tensor, new: Tensor, advantages: Tensor) -> Tensor:
    return (new**2 / old * advantages**2).sum()


def _second_moment_from_new(old: Tensor, new: Tensor, advantages: Tensor) -> Tensor:
    return (new * (new / old * advantages) ** 2).sum() - (
        new * new / old * advantages
    ).sum() ** 2


def _upside_down(old: Tensor, new: Tensor, advantages: Tensor) -> Tensor:
    mean = (old * advantages).sum()
    return (old**2 / new * advantages**2).sum() - mean**2


def _unweighted(old: Tensor, new: Tensor, advantages: Tensor) -> Tensor:
    return (new / old * advantages).var(correction=0)


def _unweighted_sample(old: Tensor, new: Tensor, advantages: Tensor) -> Tensor:
    return (new / old * advantages).var()


def _of_the_ratio(old: Tensor, new: Tensor, advantages: Tensor) -> Tensor:
    return (new**2 / old).sum() - 1


def _deviation(old: Tensor, new: Tensor, advantages: Tensor) -> Tensor:
    return my_variance(old, new, advantages).clamp(min=0).sqrt()


def _mean_of_old(old: Tensor, new: Tensor, advantages: Tensor) -> Tensor:
    return (new**2 / old * advantages**2).sum() - (old * advantages).sum() ** 2


def _draw(generator: Generator) -> Case:
    actions = integer(generator, 2, 7)
    old, new = (0.05 + uniform(generator, actions) for _ in range(2))
    return Case(
        {
            "old": old / old.sum(),
            "new": new / new.sum(),
            "advantages": 4 * uniform(generator, actions) - 2,
        }
    )


def _case(old: list[float], new: list[float], advantages: list[float]) -> Case:
    names = ("old", "new", "advantages")
    return Case(
        {
            name: torch.tensor(x, dtype=torch.float64)
            for name, x in zip(names, (old, new, advantages), strict=True)
        }
    )


VARIANCE = Exercise(
    id="ppo-clip-variance",
    title="what one reweighted sample is worth",
    concept="importance-sampling",
    minutes=10,
    difficulty="core",
    statement=r"""
    One state, $K$ actions. Actions are drawn from `old`, and each draw $a$ contributes $r(a)\, A(a)$ with
    $r = \pi_{\text{new}}(a) / \pi_{\text{old}}(a)$. Its mean is $\mathbb E_{\text{new}}[A]$. Write
    `my_variance(old, new, advantages)`, the variance of one such draw, exactly: all three are `[K]`, and no sampling is
    needed. Then set all advantages to 1. Nothing is left to estimate: why is the variance not 0?
    """,
    solution=my_variance,
    cases=(
        _case([0.5, 0.3, 0.2], [0.2, 0.3, 0.5], [1.0, 0.0, -1.0]),
        _case([0.9, 0.1], [0.5, 0.5], [1.0, 1.0]),
        _case([0.25, 0.25, 0.5], [0.25, 0.25, 0.5], [2.0, 1.0, 0.5]),
        _case([0.6, 0.1, 0.3], [0.1, 0.7, 0.2], [0.5, 2.0, -1.5]),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _from_new,
            "This is the variance of A for actions of the new policy. The mean is the same, the variance is not: the "
            "draws come from the old one, and each is weighted.",
        ),
        Mistake(
            _second_moment,
            "This is the mean of the square. A variance subtracts the square of the mean.",
        ),
        Mistake(
            _second_moment_from_new,
            "You weigh by r, and then average over actions of the new policy: that corrects twice. Who draws?",
        ),
        Mistake(_upside_down, "The ratio is upside down: new over old."),
        Mistake(
            _unweighted,
            "All actions count alike here. They are drawn with the probabilities in `old`.",
        ),
        Mistake(
            _unweighted_sample,
            "All actions count alike, and K - 1 divides: this takes the table for a sample.",
        ),
        Mistake(
            _of_the_ratio,
            "This is the variance of the ratio alone. What is averaged is ratio times advantage.",
        ),
        Mistake(_deviation, "This is the standard deviation: leave out the root."),
        Mistake(
            _mean_of_old,
            "The mean that you square is that of A under `old`. What is the mean of r A?",
        ),
    ),
    where="Take two actions with old (0.9, 0.1), new (0.5, 0.5) and advantages 1, and list both outcomes.",
    idea="""
    A variance is the mean of the square minus the square of the mean. Both means are sums over actions, weighted by
    `old`, because that is where draws come from. The thing that is drawn is $r(a) A(a)$.
    """,
    outline="""
    ```python
    ratio = ...
    mean = (old * ...).sum()
    square = (old * ...).sum()
    return ...
    ```
    """,
    right="Right. With all advantages 1 it is the chi-square divergence of new from old: noise of the ratio alone.",
)
