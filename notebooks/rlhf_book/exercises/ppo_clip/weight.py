"""The six cells, as a function."""

import torch
from torch import Generator, Tensor

from ..draws import integer, uniform
from ..exercise import Case, Exercise, Mistake
from ..mistakes import negated, swapped


def my_weight(ratio: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
    """Ratio, advantages [N] -> [N]: the weight on grad log pi of each token."""
    enough_gained = (advantages > 0) & (ratio > 1 + high)
    enough_lost = (advantages < 0) & (ratio < 1 - low)
    return torch.where(enough_gained | enough_lost, 0.0, ratio * advantages)


def _both_sides(ratio: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
    return torch.where((ratio > 1 + high) | (ratio < 1 - low), 0.0, ratio * advantages)


def _slope(ratio: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
    return torch.where(my_weight(ratio, advantages, low, high) == 0, 0.0, advantages)


def _never(ratio: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
    return ratio * advantages


def _value(ratio: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
    return torch.minimum(
        ratio * advantages, ratio.clamp(1 - low, 1 + high) * advantages
    )


def _clipped_weight(
    ratio: Tensor, advantages: Tensor, low: float, high: float
) -> Tensor:
    return ratio.clamp(1 - low, 1 + high) * advantages


def _maximum_for_bad(
    ratio: Tensor, advantages: Tensor, low: float, high: float
) -> Tensor:
    return torch.where(ratio > 1 + high, 0.0, ratio * advantages)


def _wrong_side(ratio: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
    good = (advantages > 0) & (ratio < 1 - low)
    bad = (advantages < 0) & (ratio > 1 + high)
    return torch.where(good | bad, 0.0, ratio * advantages)


def _product_clipped(
    ratio: Tensor, advantages: Tensor, low: float, high: float
) -> Tensor:
    inside = (ratio * advantages > 1 - low) & (ratio * advantages < 1 + high)
    return torch.where(inside, ratio * advantages, 0.0)


def _case(
    ratio: list[float], advantages: list[float], low: float = 0.2, high: float = 0.2
) -> Case:
    return Case(
        {
            "ratio": torch.tensor(ratio),
            "advantages": torch.tensor(advantages),
            "low": low,
            "high": high,
        }
    )


def _draw(generator: Generator) -> Case:
    tokens = integer(generator, 1, 9)
    low, high = (0.05 + 0.4 * uniform(generator, 2)).tolist()
    ratio = (2 * uniform(generator, tokens) - 1).exp()
    return Case(
        {
            "ratio": ratio,
            "advantages": 4 * uniform(generator, tokens) - 2,
            "low": low,
            "high": high,
        }
    )


WEIGHT = Exercise(
    id="ppo-clip-weight",
    title="the six cells as a function",
    concept="clip-table",
    minutes=10,
    difficulty="core",
    statement=r"""
    Write `my_weight(ratio, advantages, low, high)`: for each token the number that multiplies
    $\nabla \log \pi_\theta(a_t \mid s_t)$ in the gradient of

    $$\min\big(r_t A_t,\ \mathrm{clip}(r_t,\, 1-\text{low},\, 1+\text{high})\, A_t\big),
    \qquad r_t = \frac{\pi_\theta(a_t \mid s_t)}{\pi_{\text{old}}(a_t \mid s_t)} .$$

    `ratio` and `advantages` are `[N]`, and so is the result. No autograd: go through the cells. No token sits exactly
    on an edge of the clip range. The objective is to be maximised, so a positive number makes its token likelier.
    """,
    solution=my_weight,
    cases=(
        _case([0.7, 1.0, 1.3, 0.7, 1.0, 1.3], [1.0, 1.0, 1.0, -1.0, -1.0, -1.0]),
        _case([1.5, 0.5, 1.25, 0.75], [-0.5, 2.0, 1.0, -2.0], low=0.1, high=0.3),
        _case([1.1, 0.9, 3.0], [0.0, 0.5, 0.0]),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _both_sides,
            "You switch off every token outside the clip range. On two of the four sides the minimum picks the unclipped "
            "product, and there the gradient lives.",
        ),
        Mistake(
            _slope,
            "This is the slope in the ratio. How does the ratio change with log pi?",
        ),
        Mistake(_never, "Nothing is ever switched off here."),
        Mistake(
            _value,
            "This is the value of the objective. Where the clipped product is picked, does it still move?",
        ),
        Mistake(
            _clipped_weight,
            "You clip the weight and keep the gradient: that is another algorithm, CISPO.",
        ),
        Mistake(
            _maximum_for_bad,
            "You look at the upper edge for both signs. A bad token is done when it has lost enough: at which edge?",
        ),
        Mistake(
            _wrong_side,
            "The two that you switch off have moved the wrong way. It is the other two that are done.",
        ),
        Mistake(
            negated(my_weight),
            "The sign: this is the gradient of the loss. The exercise asks for that of the objective.",
        ),
        Mistake(
            swapped(my_weight, "low", "high"),
            "`low` and `high` are swapped: the clip range runs from 1 - low to 1 + high.",
        ),
        Mistake(
            _product_clipped,
            "You compare ratio times advantage with the clip range. The clip range is for the ratio.",
        ),
    ),
    where="Take one token at ratio 1.5 and compare the two products for A = 1, then for A = -1.",
    idea=r"""
    Where the minimum takes the free product, its derivative is $r A \nabla \log \pi$. Where it takes the clipped
    one outside the range, the derivative is 0. Draw three cells (below, inside, above) for each sign of $A$, and
    mark the two of the six in which the clipped product is smaller.
    """,
    outline="""
    ```python
    enough_gained = (...) & (...)  # good, and already likelier by more than the bound
    enough_lost = (...) & (...)
    return torch.where(..., 0.0, ...)
    ```
    """,
    right="Right. In the two open cells the weight has no bound: what would stop a bad token at ratio 50?",
)
