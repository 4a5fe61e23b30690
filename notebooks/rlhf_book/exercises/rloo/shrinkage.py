"""The best weight of a mean that is off."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given


def my_weight(p: Tensor, group_size: int, m: float) -> Tensor:
    """[P] success rates, G, the other guess m -> scalar: the best weight of m."""
    of_group = (p * (1 - p)).mean() / (group_size - 1)
    of_m = ((m - p) ** 2).mean()
    return of_group / (of_group + of_m)


def _turned(p: Tensor, group_size: int, m: float) -> Tensor:
    return 1 - my_weight(p, group_size, m)


def _unbiased_m(p: Tensor, group_size: int, m: float) -> Tensor:
    return my_weight(p, group_size, p.mean().item())


def _of_the_mean(p: Tensor, group_size: int, m: float) -> Tensor:
    of_group = p.mean() * (1 - p.mean()) / (group_size - 1)
    return of_group / (of_group + ((m - p) ** 2).mean())


def _roots(p: Tensor, group_size: int, m: float) -> Tensor:
    one = ((p * (1 - p)).mean() / (group_size - 1)).sqrt()
    return one / (one + ((m - p) ** 2).mean().sqrt())


def _one_by_one(p: Tensor, group_size: int, m: float) -> Tensor:
    one = p * (1 - p) / (group_size - 1)
    return (one / (one + (m - p) ** 2)).mean()


def _draw(generator: Generator) -> Case:
    P = integer(generator, 3, 8)
    return Case(
        {
            "p": 0.05 + 0.9 * torch.rand(P, generator=generator, dtype=torch.float64),
            "group_size": integer(generator, 2, 9),
            "m": 0.1 + 0.8 * torch.rand((), generator=generator).item(),
        }
    )


def _case(p: list[float], group_size: int, m: float) -> Case:
    return Case(
        {
            "p": torch.tensor(p, dtype=torch.float64),
            "group_size": group_size,
            "m": m,
        }
    )


SHRINKAGE = Exercise(
    id="rloo-shrinkage",
    title="a running mean that lags behind",
    concept="f-ema-mixing",
    minutes=10,
    difficulty="core",
    statement=r"""
    The policy learns, so a running mean $m$ of past rewards is *below* the mean of today's prompts. Rewards are 0 and
    1, the squared norm of a score is independent of the reward and alike for all prompts, and $\lVert g \rVert^2$ is
    small. The baseline is $w\,m$ plus $1-w$ times the mean of the others. Write `my_weight`: from the success
    rates `p` `[P]` of the prompts, the group size and `m`, return the one weight $w$ with the least noise,
    averaged over the prompts. Predict first: all prompts have $p = 0.5$, $G = 5$. Below which $m$ does the mean of the
    others get more weight than $m$?
    """,
    solution=my_weight,
    cases=(
        _case([0.5, 0.5], 5, 0.25),
        _case([0.2, 0.4, 0.9], 4, 0.3),
        _case([0.05, 0.95], 2, 0.5),
        _case([0.3, 0.3, 0.3], 8, 0.1),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _turned,
            "That is the weight of the others' mean. The guess with the smaller error gets more.",
        ),
        Mistake(
            given(my_weight, group_size=lambda group_size: group_size + 1),
            "You divide by the size of the group. Of how many rewards is the mean of the others a mean?",
        ),
        Mistake(
            _unbiased_m,
            "You take the spread of p around its own mean. The guess in use is m, and it may be off.",
        ),
        Mistake(
            _of_the_mean,
            "You take the variance of a prompt with the mean success rate. Average the prompts' own variances.",
        ),
        Mistake(
            _roots, "You weigh by standard deviations. The noise is a sum of squares."
        ),
        Mistake(
            _one_by_one,
            "That is the mean of the prompts' own best weights. Here one weight has to serve all of them.",
        ),
    ),
    where="Write the added noise as a parabola in w: one term for the others' mean, one for m. What is its lowest point?",
    idea=r"""
    With the baseline $(1-w) \cdot \text{others' mean} + w\,m$, the added noise of a prompt is $(1-w)^2
    \frac{p(1-p)}{G-1} + w^2 (m-p)^2$. Average both coefficients over the prompts before you minimise: one $w$
    serves them all.
    """,
    outline="""
    ```python
    of_group = ...  # scalar, the noise of the others' mean
    of_m = ...  # scalar, the error of m, squared
    return ...  # the lowest point of (1 - w)^2 of_group + w^2 of_m
    ```
    """,
    right="Right. With p = 0.5 everywhere and G = 5 both errors are 1/16 at m = 0.25: below that the group is worth more.",
)
