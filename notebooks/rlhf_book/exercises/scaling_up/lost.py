"""Which updates a bfloat16 weight does not notice."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake


def my_lost_share(weights: Tensor, step: float) -> Tensor:
    """Weights [n] in float32, a step -> the share that stands still in bfloat16."""
    kept = weights.bfloat16()
    moved = (kept.float() + step).bfloat16()
    return (moved == kept).float().mean()


def _in_float32(weights: Tensor, step: float) -> Tensor:
    return (weights + step == weights).float().mean()


def _half(weights: Tensor, step: float) -> Tensor:
    kept = weights.half()
    return ((kept.float() + step).half() == kept).float().mean()


def _moved(weights: Tensor, step: float) -> Tensor:
    return 1 - my_lost_share(weights, step)


def _count(weights: Tensor, step: float) -> Tensor:
    return my_lost_share(weights, step) * len(weights)


def _rounded_afterwards(weights: Tensor, step: float) -> Tensor:
    return ((weights + step).bfloat16() == weights).float().mean()


def _epsilon(weights: Tensor, step: float) -> Tensor:
    """Compares with the spacing at 1, wherever the weight is."""
    return torch.full_like(weights, float(step < 2**-8)).mean()


def _draw(generator: Generator) -> Case:
    weights = torch.randn(
        integer(generator, 4, 40), generator=generator
    ) * 10.0 ** -integer(generator, 0, 4)
    size = weights.abs().mean().item()
    return Case({"weights": weights, "step": size * 2.0 ** -integer(generator, 4, 12)})


LOST = Exercise(
    id="scale-lost",
    title="steps that do not arrive",
    concept="master-weights",
    minutes=5,
    difficulty="warm-up",
    statement=r"""
    A weight is kept in bfloat16, and a step is added to it: the sum is computed exactly enough, and rounded back to
    bfloat16 (to the nearest, as `tensor.bfloat16()` does). Write `my_lost_share(weights, step)`: the weights are
    given in float32, as they were before they were first rounded; the result is the share of them that stands after
    the step exactly where it stood, once rounded, before. Then try weights of size 0.02 with a step of $10^{-5}$.
    """,
    solution=my_lost_share,
    cases=(
        Case(
            {
                "weights": torch.tensor([1.0, 0.5, 0.02, -0.02, 0.001, 3e-4]),
                "step": 1e-4,
            }
        ),
        Case({"weights": torch.tensor([1.0, 2.0, -1.0, -0.25]), "step": 0.005}),
        Case({"weights": torch.tensor([0.123456, 0.2, -0.3, 0.04]), "step": 1e-3}),
        Case({"weights": torch.tensor([0.3, -0.7, 0.9, 0.0]), "step": 1e-6}),
    ),
    draw=_draw,
    mistakes=(
        Mistake(_in_float32, "Nothing is rounded to bfloat16 here."),
        Mistake(
            _half,
            "float16 has three bits more than bfloat16. The exercise asks for bfloat16.",
        ),
        Mistake(_moved, "This is the share that moves."),
        Mistake(_count, "These are how many. The exercise asks for the share."),
        Mistake(
            _rounded_afterwards,
            "Before the step the weight is rounded, too: compare with that.",
        ),
        Mistake(
            _epsilon,
            "The spacing of bfloat16 numbers grows and shrinks with the number.",
        ),
    ),
    where="Round, add, round again: compare what is rounded with what is rounded.",
    idea="""
    Three roundings matter: the weight as it stands, the weight after the step, and the comparison of these two. The
    addition itself is done in float32.
    """,
    outline="""
    ```python
    kept = ...  # bfloat16
    moved = ...  # float32 sum, rounded back
    return (... == ...).float().mean()
    ```
    """,
    right="Right. A step below about a 512th of the weight is lost, every time anew: it is not saved up.",
)
