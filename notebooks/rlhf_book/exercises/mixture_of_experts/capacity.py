"""How many picks an expert with a limited number of places turns away."""

import math

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given


def my_dropped(picks: Tensor, experts: int, factor: float) -> int:
    """[n, K] picks -> how many find their expert full."""
    places = math.ceil(factor * picks.numel() / experts)
    load = torch.bincount(picks.flatten(), minlength=experts)
    return int((load - places).clamp(min=0).sum())


def _overfull(picks: Tensor, experts: int, factor: float) -> int:
    places = math.ceil(factor * picks.numel() / experts)
    load = torch.bincount(picks.flatten(), minlength=experts)
    return int((load > places).sum())


def _tokens_only(picks: Tensor, experts: int, factor: float) -> int:
    places = math.ceil(factor * len(picks) / experts)
    load = torch.bincount(picks.flatten(), minlength=experts)
    return int((load - places).clamp(min=0).sum())


def _used_experts(picks: Tensor, experts: int, factor: float) -> int:
    return my_dropped(picks, len(picks.unique()), factor)


def _signed(picks: Tensor, experts: int, factor: float) -> int:
    places = math.ceil(factor * picks.numel() / experts)
    load = torch.bincount(picks.flatten(), minlength=experts)
    return abs(int((load - places).sum()))


def _draw(generator: Generator) -> Case:
    experts = integer(generator, 3, 8)
    n, k = integer(generator, 4, 30), integer(generator, 1, 2)
    skewed = torch.randn(n, experts, generator=generator) - torch.arange(experts) / 2
    return Case(
        {
            "picks": skewed.topk(k, -1)[1],
            "experts": experts,
            "factor": 1 + integer(generator, 0, 4) / 4,
        }
    )


CAPACITY = Exercise(
    id="moe-capacity",
    title="no places left",
    concept="moe",
    minutes=10,
    difficulty="core",
    statement=r"""
    Some trainers give every expert the same number of places: `factor` times the picks of the batch, $n K$, over the number of
    experts, rounded up. Picks beyond that are dropped. Write `my_dropped(picks, experts, factor)`: how many picks are dropped,
    for `[n, K]` indices `picks`; the result is one int. Do sampler and trainer see the same batch?
    """,
    solution=my_dropped,
    cases=(
        Case(
            {
                "picks": torch.tensor([[0, 1], [0, 2], [0, 1]]),
                "experts": 4,
                "factor": 1.0,
            }
        ),
        Case(
            {"picks": torch.tensor([[0], [0], [0], [1]]), "experts": 4, "factor": 1.25}
        ),
        Case(
            {"picks": torch.tensor([[0], [1], [2], [3]]), "experts": 4, "factor": 1.0}
        ),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _overfull,
            "You count the experts that are too full. Asked are the picks that find no place.",
        ),
        Mistake(
            _tokens_only,
            "Places are counted from the tokens. A token has K picks, and each needs a place.",
        ),
        Mistake(
            given(my_dropped, picks=lambda picks: picks[:, :1]),
            "Only first picks are counted.",
        ),
        Mistake(
            given(my_dropped, factor=1.0),
            "The factor is missing: it gives more places than the mean load.",
        ),
        Mistake(
            _used_experts,
            "Experts that nobody picks have places, too. They are part of the mean.",
        ),
        Mistake(
            _signed,
            "Free places of one expert do not help another: cut each difference at 0 before you sum.",
        ),
    ),
    where="Count the load of each expert, subtract its places, and keep what is above 0.",
    idea="""
    Places of an expert: `factor` times all picks, over the number of experts, rounded up. An expert with a load of
    7 and 5 places drops 2, one with a load of 3 drops none.
    """,
    outline="""
    ```python
    places = math.ceil(...)
    load = ...  # [E], how often each expert is named, those never named too
    return int((...).clamp(min=0).sum())
    ```
    """,
    right="Right. A dropped pick depends on the other tokens of the batch, and so does the log-prob. Neither has the same batch.",
)
