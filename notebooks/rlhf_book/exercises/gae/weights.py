"""The weights of the n-step advantages in their lambda-mean, when the completion ends after N tokens."""

import torch
from torch import Generator, Tensor

from ..draws import integer, uniform
from ..exercise import Case, Exercise, Mistake


def my_weights(lam: float, steps: int) -> Tensor:
    """Lambda, and N tokens left -> [N]: the weights of A^(1) to A^(N)."""
    powers = torch.tensor([lam**n for n in range(steps)], dtype=torch.float64)
    weights = (1 - lam) * powers
    weights[-1] = powers[-1]  # all that n = N, N+1, ... would have had
    return weights


def _endless(lam: float, steps: int) -> Tensor:
    return (1 - lam) * torch.tensor([lam**n for n in range(steps)], dtype=torch.float64)


def _renormalised(lam: float, steps: int) -> Tensor:
    weights = torch.tensor([lam**n for n in range(steps)], dtype=torch.float64)
    return weights / weights.sum()


def _of_the_errors(lam: float, steps: int) -> Tensor:
    return torch.tensor([lam**n for n in range(steps)], dtype=torch.float64)


def _starts_late(lam: float, steps: int) -> Tensor:
    weights = (1 - lam) * torch.tensor(
        [lam ** (n + 1) for n in range(steps)], dtype=torch.float64
    )
    weights[-1] = lam**steps
    return weights


def _rest_on_the_first(lam: float, steps: int) -> Tensor:
    return my_weights(lam, steps).flip(0)


def _rest_added(lam: float, steps: int) -> Tensor:
    weights = _endless(lam, steps)
    weights[-1] += lam ** (steps - 1)
    return weights


def _all_alike(lam: float, steps: int) -> Tensor:
    return torch.full((steps,), 1 / steps, dtype=torch.float64)


def _draw(generator: Generator) -> Case:
    return Case(
        {"lam": uniform(generator, 1).item(), "steps": integer(generator, 1, 12)}
    )


WEIGHTS = Exercise(
    id="gae-weights",
    title="weights that end where the completion ends",
    concept="gae",
    minutes=5,
    difficulty="warm-up",
    statement=r"""
    The paper averages $A^{(1)}, A^{(2)}, \dots$ with weights $(1-\lambda)\lambda^{n-1}$ for ever. A completion with $N$
    tokens left has no step $N+1$: from $n = N$ on, every $A^{(n)}$ is the same number, the reward that came minus the
    value. Write `my_weights`: from `lam` and `steps` (that is $N$) return `[N]`, the weight of each *different*
    estimate, $n = 1, \dots, N$. What do they sum to?
    """,
    solution=my_weights,
    cases=(
        Case({"lam": 0.5, "steps": 4}),
        Case({"lam": 0.9, "steps": 3}),
        Case({"lam": 0.95, "steps": 1}),
        Case({"lam": 0.0, "steps": 3}),
        Case({"lam": 1.0, "steps": 5}),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _endless,
            "These are the first N weights of the endless series, and they sum to less than 1. Who gets the weight of "
            "all the estimates that lie beyond the end?",
        ),
        Mistake(
            _renormalised,
            "You divide by the sum, which shares the missing weight out to everybody. It belongs to one estimate: the "
            "one that all longer ones are equal to.",
        ),
        Mistake(
            _of_the_errors,
            "These are the coefficients of the TD errors. Asked for are the weights of the n-step advantages, of which "
            "each is itself a sum of TD errors.",
        ),
        Mistake(
            _starts_late,
            "Every power of lambda is one too high: the one-step advantage has weight 1 - lambda.",
        ),
        Mistake(
            _rest_on_the_first,
            "The order is reversed: the first number belongs to n = 1.",
        ),
        Mistake(
            _rest_added,
            "The last estimate gets its own share twice: the rest of the series already begins with it.",
        ),
        Mistake(_all_alike, "You weigh all estimates alike, whatever lambda is."),
    ),
    where="Sum the geometric series of the weights from n = N on, and give the sum to the last estimate.",
    idea=r"""
    The weights of $n = 1, \dots, N-1$ are those of the paper. The last estimate stands for $n = N, N+1, \dots$ as
    well, so it gets $\sum_{n \ge N} (1-\lambda)\lambda^{n-1}$. What is that sum?
    """,
    outline="""
    ```python
    weights = ...  # [N], as in the paper
    weights[-1] = ...  # a single power of lambda
    ```

    All of them together sum to 1: use it as a test.
    """,
    right="Right. At lambda 1 one weight is left: of which estimate, and what has it to do with the critic?",
)
