"""The weight of a completion whose writer changed on the way."""

import torch
from torch import Generator, Tensor

from ..draws import any_batch
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given, swapped


def my_log_weight(
    logp: Tensor, first: Tensor, second: Tensor, switched_at: Tensor, mask: Tensor
) -> Tensor:
    """[B, T] log-probs, [B] integers, [B, T] mask -> [B]: log of each weight."""
    place = torch.arange(logp.shape[1], device=logp.device)
    early = place < switched_at[:, None]  # [B, T]
    sampler = torch.where(early, first, second)  # who wrote this token
    return ((logp - sampler) * mask).sum(-1)


def _newest(
    logp: Tensor, first: Tensor, second: Tensor, switched_at: Tensor, mask: Tensor
) -> Tensor:
    return ((logp - second) * mask).sum(-1)


def _oldest(
    logp: Tensor, first: Tensor, second: Tensor, switched_at: Tensor, mask: Tensor
) -> Tensor:
    return ((logp - first) * mask).sum(-1)


def _blend(
    logp: Tensor, first: Tensor, second: Tensor, switched_at: Tensor, mask: Tensor
) -> Tensor:
    share = switched_at[:, None].clamp(max=logp.shape[1]) / mask.shape[1]
    mixed = share * first.exp() + (1 - share) * second.exp()
    return ((logp - mixed.log()) * mask).sum(-1)


def _mean(
    logp: Tensor, first: Tensor, second: Tensor, switched_at: Tensor, mask: Tensor
) -> Tensor:
    return my_log_weight(logp, first, second, switched_at, mask) / mask.sum(-1)


def _exponential(
    logp: Tensor, first: Tensor, second: Tensor, switched_at: Tensor, mask: Tensor
) -> Tensor:
    return my_log_weight(logp, first, second, switched_at, mask).exp()


def _draw(generator: Generator) -> Case:
    drawn = any_batch(generator)
    B, T = drawn["mask"].shape
    other = (drawn["old_logp"] + 0.4 * torch.randn(B, T, generator=generator)).clamp(
        max=-0.01
    )
    return Case(
        {
            "logp": drawn["logp"],
            "first": drawn["old_logp"],
            "second": other,
            "switched_at": torch.randint(0, T + 2, (B,), generator=generator),
            "mask": drawn["mask"],
        }
    )


def _case(switched_at: list[int], mask: list[list[float]]) -> Case:
    p = torch.tensor([[0.5, 0.2, 0.9], [0.3, 0.6, 0.4]], dtype=torch.float64)
    q = torch.tensor([[0.4, 0.4, 0.5], [0.6, 0.3, 0.5]], dtype=torch.float64)
    r = torch.tensor([[0.1, 0.1, 0.7], [0.2, 0.7, 0.8]], dtype=torch.float64)
    return Case(
        {
            "logp": p.log(),
            "first": q.log(),
            "second": r.log(),
            "switched_at": torch.tensor(switched_at),
            "mask": torch.tensor(mask, dtype=torch.float64),
        }
    )


VERSIONS = Exercise(
    id="off-versions",
    title="a writer that changes on the way",
    concept="mixed-versions",
    minutes=10,
    difficulty="core",
    statement=r"""
    An unseen case: the engine gets new weights while it writes, and goes on with the same completion. Token number $t$,
    counted from 0, was written by the first version if $t$ is below `switched_at` of its completion, else by the
    second. `first` and `second` are the log-probs of all tokens under each version. Write
    `my_log_weight(logp, first, second, switched_at, mask)`: the logarithm of the *exact* importance weight of each
    completion, `[B]`. Under a 0 of the mask stands some finite number without meaning.
    """,
    solution=my_log_weight,
    cases=(
        _case([1, 2], [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]),
        _case([0, 3], [[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]),
        _case([5, 1], [[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]]),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _newest,
            "You give every token to the newest version. The early ones were drawn from another distribution.",
        ),
        Mistake(
            _oldest,
            "You give every token to the version that began. Who wrote the later ones?",
        ),
        Mistake(
            given(my_log_weight, switched_at=lambda switched_at: switched_at + 1),
            "One token late: `switched_at` is the first token of the second version.",
        ),
        Mistake(
            swapped(my_log_weight, "first", "second"), "The two versions are exchanged."
        ),
        Mistake(
            _blend,
            "You mix the two distributions. Each token came from one of them, and it is known from which.",
        ),
        Mistake(
            _mean,
            "You divide by the length. The probability of a completion is a product.",
        ),
        Mistake(
            given(my_log_weight, mask=torch.ones_like),
            "What stands under a 0 of the mask is in your sum.",
        ),
        Mistake(_exponential, "That is the weight. Asked is its logarithm."),
    ),
    where="The probability of a completion is a product of the probabilities with which its tokens were drawn, one by one.",
    idea="""
    Each token was drawn by one version: choose its log-prob by the place, `first` before the switch and `second`
    from it on. The logarithm of a product of ratios is a sum of differences.
    """,
    outline="""
    ```python
    early = ... < ...  # [B, T], place against switch
    sampler = torch.where(early, ..., ...)
    return (...).sum(-1)
    ```
    """,
    right="Right. It is what the engine's own log-probs say, if it keeps them while it writes. Why is that safer than reading again?",
)
