"""The largest policy that fits a card, by what a row trains and holds."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given


def my_largest(card: float, critic: float, frozen: Tensor) -> float:
    """GB of a card, relative sizes of other models -> billions of weights."""
    return 0.9 * card / (16 * (1 + critic) + 2 * frozen.sum().item())


def _critic_frozen(card: float, critic: float, frozen: Tensor) -> float:
    return 0.9 * card / (16 + 2 * critic + 2 * frozen.sum().item())


def _no_gradient(card: float, critic: float, frozen: Tensor) -> float:
    return 0.9 * card / (12 * (1 + critic) + 2 * frozen.sum().item())


def _draw(generator: Generator) -> Case:
    frozen = 0.2 + torch.rand(
        integer(generator, 2, 4), generator=generator, dtype=torch.float64
    )
    critic = 0.25 * integer(generator, 1, 5)
    return Case(
        {"card": 1.0 * integer(generator, 16, 200), "critic": critic, "frozen": frozen}
    )


def _case(card: float, critic: float, frozen: list[float]) -> Case:
    return Case(
        {
            "card": card,
            "critic": critic,
            "frozen": torch.tensor(frozen, dtype=torch.float64),
        }
    )


ROOM = Exercise(
    id="choose-room",
    title="what fits beside it",
    concept="decision-guide",
    minutes=5,
    difficulty="core",
    statement=r"""
    Weights, gradients and Adam's two averages in float32, frozen models in bfloat16. Of the card a tenth has to stay free; activations are
    not counted. Write `my_largest(card, critic, frozen)`: how many billions of weights $N$ the policy may have on a card of so many gigabytes
    ($10^9$ bytes), if a critic has `critic` $\cdot N$ weights and the frozen models have `frozen[i]` $\cdot N$ each.

    Predict first for 80 GB: how much larger may the policy be with groups and a verifier than with PPO, an equal critic, and an equal
    reference and reward model?
    """,
    solution=my_largest,
    cases=(
        _case(80.0, 1.0, [1.0, 1.0]),
        _case(80.0, 0.5, [1.0, 0.5]),
        _case(24.0, 0.25, [1.0, 3.0]),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            given(my_largest, card=lambda card: card / 0.9),
            "A tenth of the card stays free.",
        ),
        Mistake(
            given(my_largest, frozen=lambda frozen: 2 * frozen),
            "Frozen models are in bfloat16: two bytes a weight.",
        ),
        Mistake(
            given(my_largest, frozen=lambda frozen: 8 * frozen),
            "A frozen model has no gradient and no averages.",
        ),
        Mistake(_critic_frozen, "A critic is trained, too."),
        Mistake(
            _no_gradient,
            "A trained weight is four numbers: itself, its gradient, two averages.",
        ),
        Mistake(
            given(my_largest, frozen=lambda frozen: frozen[:1]),
            "All frozen models are held, not only the first.",
        ),
    ),
    where="Count bytes a weight of the policy: sixteen for what is trained, two for what is frozen, times the relative size.",
    idea=r"""
    A trained weight takes 4 + 4 + 8 bytes, a frozen one 2. The critic is trained as well, so policy and critic are
    $1 + \text{critic}$ times $N$. Nine tenths of the card are there; gigabytes over bytes a weight are billions of
    weights.
    """,
    outline="""
    ```python
    return 0.9 * card / (16 * ... + 2 * ...)
    ```
    """,
    right="Right. Without them 4.5 billion weights, with all three 2 billion: a factor of 2.25, and most of it is the critic.",
)
