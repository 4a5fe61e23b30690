"""Where the probability goes that a bad token loses."""

import torch
from torch import Generator, Tensor

from ..draws import integer, uniform
from ..exercise import Case, Exercise, Mistake


def my_ratios(old: Tensor, bad: int, low: float) -> Tensor:
    """Old probabilities [K] -> ratios [K], once `bad` stands at 1 - low."""
    left = 1 - (1 - low) * old[bad]
    others = left / (1 - old[bad])
    ratios = others.expand(len(old)).clone()
    ratios[bad] = 1 - low
    return ratios


def _bad_alone(old: Tensor, bad: int, low: float) -> Tensor:
    ratios = torch.ones_like(old)
    ratios[bad] = 1 - low
    return ratios


def _mirrored(old: Tensor, bad: int, low: float) -> Tensor:
    ratios = torch.full_like(old, 1 + low)
    ratios[bad] = 1 - low
    return ratios


def _equal_shares(old: Tensor, bad: int, low: float) -> Tensor:
    new = old + low * old[bad] / (len(old) - 1)
    new[bad] = (1 - low) * old[bad]
    return new / old


def _capped(old: Tensor, bad: int, low: float) -> Tensor:
    return my_ratios(old, bad, low).clamp(1 - low, 1 + low)


def _probabilities(old: Tensor, bad: int, low: float) -> Tensor:
    return old * my_ratios(old, bad, low)


def _all_mass(old: Tensor, bad: int, low: float) -> Tensor:
    ratios = torch.full_like(old, float(1 + low * old[bad]))
    ratios[bad] = 1 - low
    return ratios


def _subtracted(old: Tensor, bad: int, low: float) -> Tensor:
    others = (1 - (old[bad] - low)) / (1 - old[bad])
    ratios = others.expand(len(old)).clone()
    ratios[bad] = (old[bad] - low) / old[bad]
    return ratios


def _logit(old: Tensor, bad: int, low: float) -> Tensor:
    new = old.clone()
    new[bad] = (1 - low) * old[bad]
    return new / new.sum() / old


def _case(old: list[float], bad: int, low: float = 0.2) -> Case:
    return Case({"old": torch.tensor(old, dtype=torch.float64), "bad": bad, "low": low})


def _draw(generator: Generator) -> Case:
    actions = integer(generator, 2, 7)
    old = 0.05 + uniform(generator, actions) ** 2
    low = 0.05 + 0.4 * float(uniform(generator, 1))
    return Case(
        {"old": old / old.sum(), "bad": integer(generator, 0, actions), "low": low}
    )


LEAK = Exercise(
    id="ppo-clip-leak",
    title="where the probability goes",
    concept="clip-is-not-a-hard-bound",
    minutes=10,
    difficulty="core",
    statement=r"""
    A softmax policy over $K$ actions. One action is bad, and its logit, alone, is lowered until its ratio stands
    exactly at the lower edge of the clip range, $1 - \text{low}$. Write `my_ratios(old, bad, low)`: the ratios of all $K$
    actions then, `[K]`. `old` are the old probabilities, `bad` is an index. Then ask: for which old probability of the
    bad action do all the others stand above $1 + \text{low}$, though nothing pushed them?
    """,
    solution=my_ratios,
    cases=(
        _case([0.6, 0.3, 0.1], 0),
        _case([0.2, 0.3, 0.5], 1),
        _case([0.9, 0.1], 0, low=0.5),
        _case([0.1, 0.2, 0.3, 0.4], 3, low=0.1),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _bad_alone, "Probabilities add up to 1. What one action loses, others gain."
        ),
        Mistake(
            _mirrored,
            "The others do not rise by what the bad one falls. Their probabilities have to add up to 1.",
        ),
        Mistake(
            _equal_shares,
            "You share out the lost probability in equal parts. The others' logits stay: what does that say about the "
            "ratio of two of them?",
        ),
        Mistake(
            _capped,
            "You cap the others at the clip range. No clip holds them: they move because a sum has to stay 1.",
        ),
        Mistake(
            _probabilities, "These are the new probabilities. Ratios are new over old."
        ),
        Mistake(
            _all_mass,
            "You add the lost probability to 1. The others share it, and they start from less than 1 together.",
        ),
        Mistake(
            _subtracted,
            "The bad action loses a fraction of its probability, not that many points of it.",
        ),
        Mistake(
            _logit,
            "You scaled its weight by the factor and then normalised, so its ratio is not at the edge. Fix its new "
            "probability first.",
        ),
    ),
    where="Take two actions with old (0.9, 0.1): the second one's new probability leaves no choice.",
    idea=r"""
    The bad action keeps $(1 - \text{low})$ of its old probability. All other logits stay, so the others keep their
    proportions to each other: they share one ratio. Which probability is left for all of them together, and which
    had they before?
    """,
    outline="""
    ```python
    left = 1 - ...  # what the others have together now
    others = left / ...  # one ratio for all of them
    ratios = ...  # [K], that number everywhere, and one exception
    ```
    """,
    right="Right. A favourite, above one half, that is pushed to its edge carries all the others over theirs.",
)
