"""What a second reward costs at the optimum."""

import torch
from torch import Generator, Tensor

from ..draws import integer, uniform
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given


def my_price(accuracy: Tensor, language: Tensor, weight: float) -> float:
    """[K] and [K], what each kind scores -> accuracy lost at the optimum."""
    kind = (accuracy + weight * language).argmax()
    return (accuracy.max() - accuracy[kind]).item()


def _reward(accuracy: Tensor, language: Tensor, weight: float) -> float:
    return ((accuracy + weight * language).max() - accuracy.max()).item()


def _pure(accuracy: Tensor, language: Tensor, weight: float) -> float:
    return (accuracy.max() - accuracy[language.argmax()]).item()


def _mean(accuracy: Tensor, language: Tensor, weight: float) -> float:
    kind = (accuracy + weight * language).argmax()
    return (accuracy.mean() - accuracy[kind]).item()


def _gain(accuracy: Tensor, language: Tensor, weight: float) -> float:
    kind = (accuracy + weight * language).argmax()
    return weight * (language[kind] - language[accuracy.argmax()]).item()


def _soft(accuracy: Tensor, language: Tensor, weight: float) -> float:
    mix = (accuracy + weight * language).softmax(0)
    return (accuracy.max() - (mix * accuracy).sum()).item()


def _draw(generator: Generator) -> Case:
    n = integer(generator, 3, 7)
    return Case(
        {
            "accuracy": uniform(generator, n),
            "language": uniform(generator, n),
            "weight": 0.1 + 1.5 * uniform(generator, 1).item(),
        }
    )


def _case(accuracy: list[float], language: list[float], weight: float) -> Case:
    return Case(
        {
            "accuracy": torch.tensor(accuracy, dtype=torch.float64),
            "language": torch.tensor(language, dtype=torch.float64),
            "weight": weight,
        }
    )


PRICE = Exercise(
    id="r1-price",
    title="what a language costs",
    concept="r1-recipe",
    minutes=10,
    difficulty="core",
    statement=r"""
    A policy chooses among $K$ kinds of completions. Kind $k$ is right with probability `accuracy[k]`, and a share `language[k]` of its
    words is in the wanted language. It is paid $a_k + w\,\ell_k$ and trained to its optimum, without a KL penalty. Write
    `my_price(accuracy, language, weight)`: by how much its accuracy lies below that of a policy that is paid for accuracy alone.

    Predict first for three kinds, wanted language, other language, mixture, with accuracies 0.80, 0.84, 0.86 and shares 1, 0, 0.6:
    what is the price at $w = 0.1$, at 0.2, and at 2?
    """,
    solution=my_price,
    cases=(
        _case([0.80, 0.84, 0.86], [1.0, 0.0, 0.6], 0.2),
        _case([0.80, 0.84, 0.86], [1.0, 0.0, 0.6], 0.1),
        _case([0.3, 0.9, 0.5, 0.2], [0.8, 0.1, 0.6, 1.0], 0.7),
    ),
    draw=_draw,
    mistakes=(
        Mistake(_reward, "That is what the reward gains. The price is in accuracy."),
        Mistake(
            _pure,
            "The policy does not have to choose the purest kind: it chooses by the sum.",
        ),
        Mistake(given(my_price, weight=1.0), "The language counts with its weight."),
        Mistake(
            given(my_price, language=lambda language: -language),
            "The language is paid for, not fined.",
        ),
        Mistake(
            _mean,
            "Compare with the policy that is paid for accuracy alone: where does that one end?",
        ),
        Mistake(_gain, "That is what the language earns, not what it costs."),
        Mistake(
            _soft, "Without a KL penalty the optimum does not mix kinds that earn less."
        ),
    ),
    where="Two optima: find the kind that each of the two policies ends with.",
    idea=r"""
    A policy without a penalty ends with the one kind that is paid best. Find the kind with the largest $a_k +
    w\,\ell_k$, and the largest accuracy of any kind. The price is a difference of two accuracies.
    """,
    outline="""
    ```python
    kind = ...  # an index
    return (... - ...).item()  # accuracies, not payments
    ```
    """,
    right="Right. The price is a step function of the weight, and zero as soon as the most accurate kind is also in the wanted language.",
)
