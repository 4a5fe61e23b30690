"""What a batch of mixed groups costs."""

import torch
from torch import Generator, Tensor

from ..draws import integer, uniform
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given


def my_price(p: Tensor, group_size: int, groups: int) -> Tensor:
    """[N] chances of a right answer -> completions to sample, on average."""
    mixed = 1 - p**group_size - (1 - p) ** group_size  # [N]
    return group_size * groups / mixed.mean()


def _mean_of_prices(p: Tensor, group_size: int, groups: int) -> Tensor:
    mixed = 1 - p**group_size - (1 - p) ** group_size
    return group_size * groups * (1 / mixed).mean()


def _all_right_only(p: Tensor, group_size: int, groups: int) -> Tensor:
    return group_size * groups / (1 - p**group_size).mean()


def _groups(p: Tensor, group_size: int, groups: int) -> Tensor:
    return my_price(p, group_size, groups) / group_size


def _dropped(p: Tensor, group_size: int, groups: int) -> Tensor:
    return my_price(p, group_size, groups) - group_size * groups


def _share(p: Tensor, group_size: int, groups: int) -> Tensor:
    mixed = 1 - p**group_size - (1 - p) ** group_size
    return group_size * groups * (2 - mixed.mean())


def _draw(generator: Generator) -> Case:
    size = integer(generator, 2, 6)
    return Case(
        {
            "p": 0.02 + 0.96 * uniform(generator, size),
            "group_size": integer(generator, 2, 17),
            "groups": integer(generator, 1, 65),
        }
    )


def _case(p: list[float], group_size: int, groups: int) -> Case:
    return Case(
        {
            "p": torch.tensor(p, dtype=torch.float64),
            "group_size": group_size,
            "groups": groups,
        }
    )


PRICE = Exercise(
    id="dapo-price",
    title="the price of a full batch",
    concept="dynamic-sampling",
    minutes=10,
    difficulty="core",
    statement=r"""
    Prompts are drawn evenly from a pool of N, and prompt $x$ is answered rightly with the chance $p_x$. Groups of
    `group_size` are sampled one after another until `groups` mixed ones are there. Write `my_price(p, group_size,
    groups)`: how many *completions* that takes on average, those of dropped groups included; `p` is `[N]`, and the result is one
    number. Predict first: which is dearer, a pool in which every $p_x$ is 0.5, or one in which half are 0.1 and half 0.9?
    """,
    solution=my_price,
    cases=(
        _case([0.5], 8, 16),
        _case([0.1, 0.9], 8, 16),
        _case([0.02, 0.5, 0.98], 16, 32),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            given(my_price, p=lambda p: p.mean()[None]),
            "You take the mean chance first. Two prompts at 0.1 and 0.9 are not one at 0.5.",
        ),
        Mistake(
            _mean_of_prices,
            "You average the prices of prompts. A new group belongs to a new prompt of the pool, not to the same one.",
        ),
        Mistake(_all_right_only, "Groups in which nobody is right are dropped too."),
        Mistake(_groups, "You count groups. The question is about completions."),
        Mistake(
            _dropped,
            "You count the dropped ones alone. Those that are kept were sampled too.",
        ),
        Mistake(
            _share,
            "You replace the dropped groups once. Their replacements may be dropped again.",
        ),
    ),
    where="What is the chance that the next group is mixed, before its prompt is drawn? Then think of throwing until the first success.",
    idea="""
    A group of prompt $x$ is mixed unless all are right or all are wrong. The prompt is drawn evenly, so the next
    group is mixed with the *mean* of these chances. Waiting for one success of chance $m$ takes $1/m$ throws.
    """,
    outline="""
    ```python
    mixed = 1 - ... - ...  # [N]
    return ... / mixed.mean()  # completions, not groups
    ```
    """,
    right="Right. And how far is the real price above this one, if a loop samples whole rounds and throws away what is over?",
)
