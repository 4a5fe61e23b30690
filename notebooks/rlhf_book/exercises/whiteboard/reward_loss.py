"""The loss of a reward model: a comparison."""

import torch
from torch import Generator, Tensor
from torch.nn.functional import logsigmoid

from ..draws import integer
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given


def my_reward_loss(chosen: Tensor, rejected: Tensor) -> Tensor:
    """Scores [N] of chosen and of rejected completions -> a number, to minimise."""
    return -torch.nn.functional.logsigmoid(chosen - rejected).mean()


def _swapped(chosen: Tensor, rejected: Tensor) -> Tensor:
    return -logsigmoid(rejected - chosen).mean()


def _no_logarithm(chosen: Tensor, rejected: Tensor) -> Tensor:
    return -torch.sigmoid(chosen - rejected).mean()


def _two_classes(chosen: Tensor, rejected: Tensor) -> Tensor:
    return -(logsigmoid(chosen) + logsigmoid(-rejected)).mean()


def _summed(chosen: Tensor, rejected: Tensor) -> Tensor:
    return -logsigmoid(chosen - rejected).sum()


def _maximised(chosen: Tensor, rejected: Tensor) -> Tensor:
    return logsigmoid(chosen - rejected).mean()


def _overflows(chosen: Tensor, rejected: Tensor) -> Tensor:
    return -torch.log(torch.sigmoid(chosen - rejected)).mean()


def _hinge(chosen: Tensor, rejected: Tensor) -> Tensor:
    return torch.relu(1 - (chosen - rejected)).mean()


def _gap(chosen: Tensor, rejected: Tensor) -> Tensor:
    return (rejected - chosen).mean()


def _of_the_mean(chosen: Tensor, rejected: Tensor) -> Tensor:
    return -logsigmoid((chosen - rejected).mean())


def _case(n: int, generator: Generator, spread: float) -> Case:
    scores = spread * torch.randn(2, n, generator=generator)
    return Case({"chosen": scores[0], "rejected": scores[1]})


def _draw(generator: Generator) -> Case:
    spread = (0.5, 2.0, 200.0)[integer(generator, 0, 3)]
    return _case(integer(generator, 1, 7), generator, spread)


REWARD_LOSS = Exercise(
    id="board-reward-loss",
    title="a reward model's loss",
    concept="bradley-terry",
    minutes=5,
    difficulty="warm-up",
    statement=r"""
    Somebody compared two completions of each of $N$ prompts. Write `my_reward_loss(chosen, rejected)`: from the scores
    that a reward model gives to the chosen and to the rejected completions, `[N]` each, the mean negative log-likelihood
    of these choices under Bradley-Terry, in which the chosen one wins with probability $\sigma(r_c - r_r)$. It has to
    survive scores that are hundreds apart, in single precision. The checker compares the value and the gradients with
    respect to `chosen` and `rejected`.
    """,
    solution=my_reward_loss,
    cases=(
        Case(
            {
                "chosen": torch.tensor([1.0, 0.5, -0.2]),
                "rejected": torch.tensor([0.0, 1.5, -1.2]),
            }
        ),
        Case({"chosen": torch.tensor([2.0]), "rejected": torch.tensor([-1.0])}),
        Case({"chosen": torch.tensor([-150.0]), "rejected": torch.tensor([150.0])}),
        _case(4, torch.Generator().manual_seed(0), 2.0),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _swapped,
            "This loss is small when the rejected completions score higher: the two are the wrong way round.",
        ),
        Mistake(
            _no_logarithm,
            "This is minus the probability of the choices. A likelihood of many choices is a product: where is its logarithm?",
        ),
        Mistake(
            _two_classes,
            "You treat chosen and rejected as two classes. Then a score means something alone; a comparison knows only a "
            "difference.",
        ),
        Mistake(
            _summed, "This is the sum over the pairs; the mean over them is asked for."
        ),
        Mistake(_maximised, "This is to be maximised: a loss has the other sign."),
        Mistake(
            _overflows,
            "Right for scores that are near each other. Far apart, an exponential is rounded to 0 or to infinity before the "
            "logarithm is taken.",
        ),
        Mistake(
            _hinge,
            "This is a hinge: it stops at a margin of 1. Bradley-Terry's loss never quite stops.",
        ),
        Mistake(
            _gap,
            "This is the mean gap, which has no minimum: how does a probability enter?",
        ),
        Mistake(
            _of_the_mean,
            "You average the differences first: one pair with a huge margin would pay for all the others.",
        ),
        Mistake(
            given(my_reward_loss, rejected=Tensor.detach),
            "The value is right, but no gradient reaches the rejected scores. What should a step do to them?",
        ),
    ),
    where="Write the probability of one choice, then minus its logarithm. Which function of torch does both without rounding?",
    idea=r"""
    One choice has the probability $\sigma(r_c - r_r)$. Its logarithm far below 0 must not be taken of a rounded 0:
    torch has one function for the logarithm of a sigmoid.
    """,
    outline="""
    ```python
    margin = ...  # [N]
    return ...  # minus a mean: the log of the sigmoid, in one function
    ```
    """,
    right="Right. What does the loss say about the scores if 10 is added to all of them?",
    gradient_of=("chosen", "rejected"),
)
