"""Group sizes for prompts whose completions do not cost the same."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake


def my_sizes(p: Tensor, tokens: Tensor, budget: float) -> Tensor:
    """[P] success rates, [P] tokens each, all tokens -> [P] sizes, not rounded."""
    share = (p * (1 - p) / tokens).sqrt()
    return budget * share / (tokens * share).sum()


def _samples(p: Tensor, tokens: Tensor, budget: float) -> Tensor:
    share = (p * (1 - p)).sqrt()
    return budget * share / (tokens * share).sum()


def _no_root(p: Tensor, tokens: Tensor, budget: float) -> Tensor:
    share = p * (1 - p) / tokens
    return budget * share / (tokens * share).sum()


def _cost_outside(p: Tensor, tokens: Tensor, budget: float) -> Tensor:
    share = (p * (1 - p)).sqrt() / tokens
    return budget * share / (tokens * share).sum()


def _not_spent(p: Tensor, tokens: Tensor, budget: float) -> Tensor:
    share = (p * (1 - p) / tokens).sqrt()
    return budget * share / share.sum()


def _hard(p: Tensor, tokens: Tensor, budget: float) -> Tensor:
    share = ((1 - p) / tokens).sqrt()
    return budget * share / (tokens * share).sum()


def _more(p: Tensor, tokens: Tensor, budget: float) -> Tensor:
    share = (p * (1 - p) * tokens).sqrt()
    return budget * share / (tokens * share).sum()


def _draw(generator: Generator) -> Case:
    P = integer(generator, 2, 6)
    tokens = torch.randint(1, 9, (P,), generator=generator).double()
    p = 0.05 + 0.9 * torch.rand(P, generator=generator, dtype=torch.float64)
    return Case({"p": p, "tokens": tokens, "budget": 50.0 * P})


def _case(p: list[float], tokens: list[float], budget: float) -> Case:
    return Case(
        {
            "p": torch.tensor(p, dtype=torch.float64),
            "tokens": torch.tensor(tokens, dtype=torch.float64),
            "budget": budget,
        }
    )


SIZES = Exercise(
    id="rloo-sizes",
    title="hard prompts have long completions",
    concept="f-adaptive-g",
    minutes=12,
    difficulty="stretch",
    statement=r"""
    A completion of prompt $q$ costs `tokens[q]` tokens, and there are `budget` tokens in all. The noise of a batch in which every
    prompt counts alike is proportional to $\sum_q p_q (1 - p_q) / n_q$. Write `my_sizes`: the sizes $n_q$ `[P]`, not
    rounded, that use the whole budget and make this least. Predict first: two prompts with $p = 0.5$, and a
    completion of the second costs four times as much. Does it get the same number of completions, half, or a quarter?
    """,
    solution=my_sizes,
    cases=(
        _case([0.5, 0.5], [1.0, 4.0], 60.0),
        _case([0.1, 0.5, 0.9], [2.0, 2.0, 8.0], 96.0),
        _case([0.02, 0.3], [9.0, 1.0], 100.0),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _samples,
            "The sizes do not depend on the cost. What does one completion of a costly prompt take from the others?",
        ),
        Mistake(
            _no_root,
            "Derive it with a multiplier: the derivative of 1/n is -1/n^2. What follows for n?",
        ),
        Mistake(_cost_outside, "Is the cost under the root as well?"),
        Mistake(
            _not_spent,
            "Your completions do not cost the budget. Each costs its own tokens.",
        ),
        Mistake(
            _more,
            "A costly completion gets more, and not fewer. Does its cost make it worth more?",
        ),
        Mistake(
            _hard,
            "A prompt that is never solved has no noise. Where is a reward's variance largest?",
        ),
    ),
    where="Minimise the sum of v/n under the sum of c n = budget: set the derivative in each n to the same multiplier times c.",
    idea=r"""
    With $v = p(1-p)$ and $c$ the tokens, the condition is $v/n^2 = \mu c$, so $n \propto \sqrt{v/c}$. The
    multiplier follows from the budget: $\sum c\, n$ must be all of it.
    """,
    outline="""
    ```python
    share = ...  # [P], the sizes up to one factor
    return budget * share / ...  # what these shares would cost
    ```
    """,
    right="Right. With equal variances a prompt that costs four times as much gets half as many completions, and takes twice the tokens.",
)
