"""An adaptive KL coefficient."""

import torch
from torch import Generator, Tensor

from ..draws import integer, uniform
from ..exercise import Case, Exercise, Mistake


def my_coefficients(
    beta: float, distances: Tensor, target: float, completions: int, horizon: int
) -> Tensor:
    """[N] measured KLs -> [N]: the coefficient after each of N steps."""
    after = []
    for distance in distances.tolist():
        error = min(max(distance / target - 1, -0.2), 0.2)
        beta = beta * (1 + error * completions / horizon)
        after.append(beta)
    return torch.tensor(after, dtype=torch.float64)


def _run(
    beta: float,
    distances: Tensor,
    target: float,
    factor: float,
    *,
    clip: float = 0.2,
    sign: int = 1,
    relative: bool = True,
    add: bool = False,
) -> Tensor:
    after = []
    for distance in distances.tolist():
        error = (distance - target) / (target if relative else 1.0)
        error = sign * min(max(error, -clip), clip)
        beta = beta + error * factor if add else beta * (1 + error * factor)
        after.append(beta)
    return torch.tensor(after, dtype=torch.float64)


def _no_clip(
    beta: float, distances: Tensor, target: float, completions: int, horizon: int
) -> Tensor:
    return _run(beta, distances, target, completions / horizon, clip=float("inf"))


def _sign(
    beta: float, distances: Tensor, target: float, completions: int, horizon: int
) -> Tensor:
    return _run(beta, distances, target, completions / horizon, sign=-1)


def _absolute(
    beta: float, distances: Tensor, target: float, completions: int, horizon: int
) -> Tensor:
    return _run(beta, distances, target, completions / horizon, relative=False)


def _fixed_gain(
    beta: float, distances: Tensor, target: float, completions: int, horizon: int
) -> Tensor:
    return _run(beta, distances, target, 0.1)


def _added(
    beta: float, distances: Tensor, target: float, completions: int, horizon: int
) -> Tensor:
    return _run(beta, distances, target, completions / horizon, add=True)


def _before(
    beta: float, distances: Tensor, target: float, completions: int, horizon: int
) -> Tensor:
    after = my_coefficients(beta, distances, target, completions, horizon)
    return torch.cat([torch.tensor([beta], dtype=torch.float64), after[:-1]])


def _always_from_start(
    beta: float, distances: Tensor, target: float, completions: int, horizon: int
) -> Tensor:
    error = (distances.double() / target - 1).clamp(-0.2, 0.2)
    return beta * (1 + error * completions / horizon)


def _draw(generator: Generator) -> Case:
    steps = integer(generator, 2, 9)
    return Case(
        {
            "beta": 0.01 + float(uniform(generator, 1)),
            "distances": 12 * uniform(generator, steps),
            "target": 1 + 6 * float(uniform(generator, 1)),
            "completions": integer(generator, 10, 500),
            "horizon": integer(generator, 1000, 10000),
        }
    )


CONTROL = Exercise(
    id="kl-control",
    title="a coefficient that follows its target",
    concept="kl-placement",
    minutes=10,
    difficulty="core",
    statement=r"""
    Write the controller of this depth: `my_coefficients(beta, distances, target, completions, horizon)`. `distances`
    are the KLs measured in `[N]` steps; the result is `[N]`, the coefficient *after* each of them. In each step the
    relative error, KL over target minus 1, is clipped to $\pm 0.2$, and the coefficient is multiplied by 1 plus the
    error times `completions / horizon`.
    """,
    solution=my_coefficients,
    cases=(
        Case(
            {
                "beta": 0.1,
                "distances": torch.tensor([0.0, 6.3, 60.0], dtype=torch.float64),
                "target": 6.0,
                "completions": 100,
                "horizon": 1000,
            }
        ),
        Case(
            {
                "beta": 0.5,
                "distances": torch.tensor([2.2, 2.2], dtype=torch.float64),
                "target": 2.0,
                "completions": 512,
                "horizon": 10000,
            }
        ),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _no_clip, "The error is not clipped: one wild measurement moves all of it."
        ),
        Mistake(
            _sign,
            "The direction: a policy that is too far needs a larger coefficient.",
        ),
        Mistake(
            _absolute,
            "The error is relative to the target: at a target of 6 nats, 6.6 is a tenth too far.",
        ),
        Mistake(
            _fixed_gain,
            "The gain is completions / horizon, so that it does not matter how samples are cut into steps.",
        ),
        Mistake(
            _added,
            "The coefficient is multiplied, so that it never changes its sign.",
        ),
        Mistake(
            _before,
            "These are the coefficients before each step. Asked for are those after it.",
        ),
        Mistake(
            _always_from_start,
            "Each step begins with the coefficient of the step before, not with the first one.",
        ),
    ),
    where="Do two steps by hand, both above the target. The second begins where the first ended.",
    idea="""
    One step is: error = KL / target − 1; clip it; multiply the *current* coefficient by 1 + error × completions /
    horizon; write the result down. The next step begins with what was just written down.
    """,
    outline="""
    ```python
    after = []
    for distance in distances.tolist():
        error = ...  # held between -0.2 and 0.2
        beta = ...
        after.append(beta)
    ```
    """,
    right="Right. What would happen to a policy that cannot reach its target, however long it trains?",
)
