"""A linear layer with a correction of low rank."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given


def my_lora(
    x: Tensor, weight: Tensor, down: Tensor, up: Tensor, alpha: float
) -> Tensor:
    """x [n, in], weight [out, in], down = A [r, in], up = B [out, r] -> [n, out]."""
    rank = len(down)
    return x @ weight.T + alpha / rank * (x @ down.T @ up.T)


def _unscaled(
    x: Tensor, weight: Tensor, down: Tensor, up: Tensor, alpha: float
) -> Tensor:
    return x @ weight.T + x @ down.T @ up.T


def _alpha_alone(
    x: Tensor, weight: Tensor, down: Tensor, up: Tensor, alpha: float
) -> Tensor:
    return x @ weight.T + alpha * (x @ down.T @ up.T)


def _by_the_width(
    x: Tensor, weight: Tensor, down: Tensor, up: Tensor, alpha: float
) -> Tensor:
    return x @ weight.T + alpha / down.shape[1] * (x @ down.T @ up.T)


def _root(x: Tensor, weight: Tensor, down: Tensor, up: Tensor, alpha: float) -> Tensor:
    return x @ weight.T + alpha / len(down) ** 0.5 * (x @ down.T @ up.T)


def _without_the_weight(
    x: Tensor, weight: Tensor, down: Tensor, up: Tensor, alpha: float
) -> Tensor:
    return alpha / len(down) * (x @ down.T @ up.T)


def _all_scaled(
    x: Tensor, weight: Tensor, down: Tensor, up: Tensor, alpha: float
) -> Tensor:
    return alpha / len(down) * (x @ (weight + up @ down).T)


def _minus(x: Tensor, weight: Tensor, down: Tensor, up: Tensor, alpha: float) -> Tensor:
    return x @ weight.T - alpha / len(down) * (x @ down.T @ up.T)


def _case(
    generator: Generator, n: int, wide: int, out: int, rank: int, alpha: float
) -> Case:
    shapes = {
        "x": (n, wide),
        "weight": (out, wide),
        "down": (rank, wide),
        "up": (out, rank),
    }
    drawn = {
        name: torch.randn(shape, generator=generator) for name, shape in shapes.items()
    }
    return Case({**drawn, "alpha": alpha})


def _draw(generator: Generator) -> Case:
    n, wide, out, rank = (integer(generator, 2, 7) for _ in range(4))
    return _case(generator, n, wide, out, rank, 0.25 * integer(generator, 1, 40))


_G = torch.Generator().manual_seed(0)

LORA = Exercise(
    id="scale-lora",
    title="a layer with a correction",
    concept="lora",
    minutes=5,
    difficulty="warm-up",
    statement=r"""
    Write `my_lora(x, weight, down, up, alpha)`: what a linear layer of weight $W$ with the correction $\frac{\alpha}{r}
    BA$ makes of the rows of `x`. `down` is $A$, `[r, in]`, and `up` is $B$, `[out, r]`; read $r$ off their shapes.
    The gradient with respect to `up` is compared, too. Do not build the matrix $BA$: which order of products is
    cheap?
    """,
    solution=my_lora,
    cases=(
        _case(_G, 2, 4, 3, 2, 32.0),
        _case(_G, 3, 5, 6, 3, 0.5),
        _case(_G, 1, 6, 2, 4, 3.0),
    ),
    draw=_draw,
    mistakes=(
        Mistake(_unscaled, "The correction has a factor in front."),
        Mistake(
            _alpha_alone,
            "The factor is alpha over the rank, so that a larger rank is no larger step.",
        ),
        Mistake(
            _by_the_width, "You divide by the width of the input. What is the rank?"
        ),
        Mistake(_root, "The factor is alpha over the rank. The root is rsLoRA's."),
        Mistake(
            _without_the_weight,
            "This is the correction alone. The frozen weight still acts.",
        ),
        Mistake(
            _all_scaled,
            "The factor belongs to the correction; the frozen weight keeps its own size.",
        ),
        Mistake(_minus, "The correction is added."),
        Mistake(
            given(my_lora, up=Tensor.detach),
            "The values are right, but nothing of the gradient reaches B.",
        ),
    ),
    where="Set B to zero: only the frozen layer must be left.",
    idea="""
    $W x$ and the correction are added. The cheap order goes through the narrow side: first $A$ to `[n, r]`, then
    $B$ to `[n, out]`. Rows of `x` are multiplied from the right by transposes.
    """,
    outline="""
    ```python
    rank = ...  # off a shape
    return x @ weight.T + ... * (x @ ... @ ...)
    ```
    """,
    right="Right. First down to r numbers, then up: r (in + out) products a row in place of in times out.",
    gradient_of="up",
)
