"""How fast an entropy bonus raises the entropy."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake
from ..mistakes import negated


def my_bonus_rate(logits: Tensor) -> Tensor:
    """[V] logits -> change of the entropy per unit of step along its gradient."""
    logp = logits.log_softmax(-1)
    p = logp.exp()
    entropy = -(p * logp).sum()
    return ((p * (logp + entropy)) ** 2).sum()


def _natural(logits: Tensor) -> Tensor:
    logp = logits.log_softmax(-1)
    p = logp.exp()
    return (p * (logp - (p * logp).sum()) ** 2).sum()


def _uncentred(logits: Tensor) -> Tensor:
    logp = logits.log_softmax(-1)
    return ((logp.exp() * logp) ** 2).sum()


def _norm(logits: Tensor) -> Tensor:
    return my_bonus_rate(logits).sqrt()


def _by_probability(logits: Tensor) -> Tensor:
    logp = logits.log_softmax(-1)
    p = logp.exp()
    return ((logp - (p * logp).sum()) ** 2).sum()


def _value(logits: Tensor) -> Tensor:
    logp = logits.log_softmax(-1)
    return -(logp.exp() * logp).sum()


def _draw(generator: Generator) -> Case:
    size = integer(generator, 2, 8)
    return Case(
        {"logits": 2 * torch.randn(size, generator=generator, dtype=torch.float64)}
    )


def _case(logits: list[float]) -> Case:
    return Case({"logits": torch.tensor(logits, dtype=torch.float64)})


BONUS = Exercise(
    id="dapo-bonus-rate",
    title="what an entropy bonus can do near the end",
    concept="entropy-collapse",
    minutes=15,
    difficulty="stretch",
    statement=r"""
    An entropy bonus adds $\eta \nabla H$ to the step of the logits of one state. Write `my_bonus_rate(logits)`: by how
    much $H$ changes per unit of $\eta$, to first order, for logits `[V]`; the result is one number. Before you run it:
    does the bonus pull harder or more gently as one token's probability goes to 1?
    """,
    solution=my_bonus_rate,
    cases=(_case([0.0, 1.0, -1.0]), _case([4.0, 0.0]), _case([0.3, 0.2, 0.1, -2.0])),
    draw=_draw,
    mistakes=(
        Mistake(
            _natural,
            "That is the rate for a natural gradient. Here the logits move along the plain one.",
        ),
        Mistake(
            _uncentred,
            "Shift all logits by a constant: nothing may change. Which mean is missing from the gradient of H?",
        ),
        Mistake(
            _norm,
            "A step along a gradient changes the function by the square of the gradient's norm.",
        ),
        Mistake(
            _by_probability,
            "The derivative by a logit has the probability as a factor.",
        ),
        Mistake(
            _value,
            "That is the entropy itself. How fast does it change along its gradient?",
        ),
        Mistake(negated(my_bonus_rate), "The sign: a bonus raises the entropy."),
    ),
    where="Write down the derivative of H by one logit. What does a step along a gradient add to the function?",
    idea=r"""
    To first order a step $\eta \nabla H$ changes $H$ by $\eta \lVert \nabla H \rVert^2$. The derivative of $H$ in
    logit $k$ is $-p_k (\log p_k + H)$.
    """,
    outline="""
    ```python
    logp = ...
    p = logp.exp()
    entropy = ...
    return (...).sum()  # the square of each derivative
    ```
    """,
    right="Right. It goes to 0 as the policy becomes sure, so a bonus that comes late hardly acts. At which logits is it largest?",
)
