"""How long the step is when the equation was solved with damping."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake


def my_step(F: Tensor, g: Tensor, delta: float, damping: float) -> Tensor:
    """[N, N] Fisher matrix, [N] gradient -> [N] the step."""
    x = torch.linalg.solve(F + damping * torch.eye(len(g), dtype=g.dtype), g)
    return (2 * delta / (x @ F @ x)).sqrt() * x


def _damped(F: Tensor, damping: float) -> Tensor:
    return F + damping * torch.eye(len(F), dtype=F.dtype)


def _length_of_the_damped(F: Tensor, g: Tensor, delta: float, damping: float) -> Tensor:
    x = torch.linalg.solve(_damped(F, damping), g)
    return (2 * delta / (x @ _damped(F, damping) @ x)).sqrt() * x


def _no_damping(F: Tensor, g: Tensor, delta: float, damping: float) -> Tensor:
    x = torch.linalg.solve(F, g)
    return (2 * delta / (x @ g)).sqrt() * x


def _no_two(F: Tensor, g: Tensor, delta: float, damping: float) -> Tensor:
    return my_step(F, g, delta, damping) / 2**0.5


def _no_root(F: Tensor, g: Tensor, delta: float, damping: float) -> Tensor:
    x = torch.linalg.solve(_damped(F, damping), g)
    return 2 * delta / (x @ F @ x) * x


def _plain(F: Tensor, g: Tensor, delta: float, damping: float) -> Tensor:
    return (2 * delta / (g @ F @ g)).sqrt() * g


def _unit_length(F: Tensor, g: Tensor, delta: float, damping: float) -> Tensor:
    x = torch.linalg.solve(_damped(F, damping), g)
    return (2 * delta) ** 0.5 * x / x.norm()


def _matrix(generator: Generator, n: int) -> Tensor:
    half = torch.randn(n, n, generator=generator, dtype=torch.float64)
    return half @ half.T / n + 0.05 * torch.eye(n, dtype=torch.float64)


def _draw(generator: Generator) -> Case:
    n = integer(generator, 2, 6)
    g = torch.randn(n, generator=generator, dtype=torch.float64)
    delta, damping = torch.rand(2, generator=generator).tolist()
    return Case(
        {
            "F": _matrix(generator, n),
            "g": g,
            "delta": 0.001 + 0.05 * delta,
            "damping": 0.02 + damping,
        }
    )


def _case(F: list[list[float]], g: list[float], delta: float, damping: float) -> Case:
    matrix, vector = (torch.tensor(a, dtype=torch.float64) for a in (F, g))
    return Case({"F": matrix, "g": vector, "delta": delta, "damping": damping})


LENGTH = Exercise(
    id="tr-length",
    title="how long is a damped step?",
    concept="trpo",
    minutes=8,
    difficulty="core",
    statement=r"""
    The Fisher matrix `F` `[N, N]` and the surrogate's gradient `g` `[N]` are given. With a `damping` $\lambda$ the direction $x$
    solves $(F + \lambda I)\, x = g$. Write `my_step`: return the step along $x$, `[N]`, whose KL to second order is exactly
    `delta`. Predict first: if one used $F + \lambda I$ for the length as well, would the step's KL be above `delta` or below it?
    """,
    solution=my_step,
    cases=(
        _case([[2.0, 0.0], [0.0, 0.5]], [1.0, 1.0], 0.01, 0.1),
        _case([[0.25, -0.1], [-0.1, 0.2]], [0.3, -0.2], 0.02, 0.5),
        _case([[1.0, 0.0], [0.0, 0.01]], [1.0, 0.1], 0.01, 0.1),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _length_of_the_damped,
            "Damping chooses the direction. The KL of a step is measured by F itself.",
        ),
        Mistake(_no_damping, "You solve with F alone, without the damping."),
        Mistake(_no_two, "The KL is HALF of the quadratic form."),
        Mistake(_no_root, "The KL grows with the square of the length."),
        Mistake(
            _plain,
            "This is a step along the gradient itself. Its KL is right, its direction is not asked for.",
        ),
        Mistake(
            _unit_length,
            "You make a step of a fixed length in parameters. What is its KL?",
        ),
    ),
    where="A step t x has the KL t^2 x^T F x / 2. Set it to delta.",
    idea=r"""
    Two matrices play two parts. The direction is solved with the damped one. The length comes from $t^2\, x^\top F
    x / 2 = \delta$ with the plain one: solve this for $t$.
    """,
    outline="""
    ```python
    x = torch.linalg.solve(..., g)  # the damped matrix
    return (... / ...).sqrt() * x  # the plain one
    ```
    """,
    right="Right. With F + lambda I in the length the step would be shorter than allowed: its KL would be below delta.",
)
