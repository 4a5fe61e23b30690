"""Where a KL penalty lets training end."""

import math

from torch import Generator

from ..draws import uniform
from ..exercise import Case, Exercise, Mistake


def my_optimum(p: float, beta: float) -> tuple[float, float]:
    """Share right at the optimum of E[R] - beta KL, and its KL in nats."""
    odds = p / (1 - p) * math.exp(1 / beta)
    q = odds / (1 + odds)
    return q, q * math.log(q / p) + (1 - q) * math.log((1 - q) / (1 - p))


def _linear(p: float, beta: float) -> tuple[float, float]:
    q = min(p + 1 / beta, 1 - 1e-9)
    return q, q * math.log(q / p) + (1 - q) * math.log((1 - q) / (1 - p))


def _times_beta(p: float, beta: float) -> tuple[float, float]:
    odds = p / (1 - p) * math.exp(beta)
    q = odds / (1 + odds)
    return q, q * math.log(q / p) + (1 - q) * math.log((1 - q) / (1 - p))


def _not_normalised(p: float, beta: float) -> tuple[float, float]:
    q = p * math.exp(1 / beta)
    return q, math.log(q / p)


def _one_term(p: float, beta: float) -> tuple[float, float]:
    q, _ = my_optimum(p, beta)
    return q, q * math.log(q / p)


def _other_direction(p: float, beta: float) -> tuple[float, float]:
    q, _ = my_optimum(p, beta)
    return q, p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))


def _times_coefficient(p: float, beta: float) -> tuple[float, float]:
    q, distance = my_optimum(p, beta)
    return q, beta * distance


def _log2(p: float, beta: float) -> tuple[float, float]:
    q, distance = my_optimum(p, beta)
    return q, distance / math.log(2)


def _draw(generator: Generator) -> Case:
    p, beta = (float(x) for x in uniform(generator, 2))
    return Case({"p": 0.05 + 0.9 * p, "beta": 0.2 + 2 * beta})


OPTIMUM = Exercise(
    id="kl-optimum",
    title="where the penalty lets training end",
    concept="kl-in-reward",
    minutes=15,
    difficulty="core",
    statement=r"""
    Predict before you look at a longer run. A prompt's completions earn 1 if they are right and 0 if they are wrong;
    under the reference a share $p$ is right. Training maximises $\mathbb E[R] - \beta\, \mathrm{KL}(\pi \,\|\,
    \pi_{ref})$ for whole completions. The best policy is $\pi(o) \propto \pi_{ref}(o)\, e^{R(o)/\beta}$.

    Write `my_optimum(p, beta)`: the share right under that policy, and its $\mathrm{KL}(\pi \,\|\, \pi_{ref})$ in nats.
    Then ask for one prompt with $p = 0.2$, at $\beta = 0.4$ and at 0.1. (The runs of section 6 mix prompts of different
    $p$, and held at $\beta = 0.4$ they stand below this optimum: [about 0.4
    right](kl-divergence-in-depth.ipynb#the-runs-in-numbers) after 30 steps.)
    """,
    solution=my_optimum,
    cases=(
        Case({"p": 0.2, "beta": 0.4}),
        Case({"p": 0.5, "beta": 1.0}),
        Case({"p": 0.9, "beta": 0.5}),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _linear,
            "The reward does not add to a probability. It multiplies it, through an exponential.",
        ),
        Mistake(
            _times_beta,
            "A larger coefficient has to hold the policy nearer to the reference. Yours does the opposite.",
        ),
        Mistake(
            _not_normalised,
            "These probabilities do not sum to 1: the wrong completions count in the normalisation, too.",
        ),
        Mistake(
            _one_term,
            "The share is right. The KL sums over all completions, the wrong ones as well.",
        ),
        Mistake(
            _other_direction,
            "The share is right. The KL is that of the other direction.",
        ),
        Mistake(
            _times_coefficient,
            "The share is right. The second number is the KL itself, without its coefficient.",
        ),
        Mistake(
            _log2,
            "The share is right. The KL is in bits; a nat uses the natural logarithm.",
        ),
    ),
    where="All right completions are multiplied by one number, all wrong ones by another. What happens to the odds?",
    idea=r"""
    The odds of being right are $p/(1-p)$ under the reference. At the optimum every right completion has been
    multiplied by $e^{1/\beta}/Z$ and every wrong one by $1/Z$. With the new share $q$, the KL is that of two coins:
    within the right ones nothing has been rearranged.
    """,
    outline="""
    ```python
    odds = p / (1 - p) * ...
    q = ...  # odds back into a share
    return q, q * math.log(...) + (1 - q) * math.log(...)
    ```
    """,
    right="Right. The optimum is where training may end. The runs at 0.4 stand below it; why was not measured.",
)
