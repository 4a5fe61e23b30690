"""What k3 loses when the sampler cuts off the tail."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake


def my_mean_of_k3(policy: Tensor, reference: Tensor, kept: Tensor) -> Tensor:
    """[V] probabilities, [V] bool -> mean of k3 on samples of the cut policy."""
    cut = torch.where(kept, policy, 0.0)
    cut = cut / cut.sum()
    r = reference[kept] / cut[kept]
    return (cut[kept] * (r - 1 - torch.log(r))).sum()


def _exact(policy: Tensor, reference: Tensor, kept: Tensor) -> Tensor:
    cut = policy[kept] / policy[kept].sum()
    return (cut * torch.log(cut / reference[kept])).sum()


def _whole(policy: Tensor, reference: Tensor, kept: Tensor) -> Tensor:
    r = reference / policy
    return (policy * (r - 1 - torch.log(r))).sum()


def _not_renormalised(policy: Tensor, reference: Tensor, kept: Tensor) -> Tensor:
    r = reference[kept] / policy[kept]
    return (policy[kept] * (r - 1 - torch.log(r))).sum()


def _wrong_log_probs(policy: Tensor, reference: Tensor, kept: Tensor) -> Tensor:
    cut = policy[kept] / policy[kept].sum()
    r = reference[kept] / policy[kept]
    return (cut * (r - 1 - torch.log(r))).sum()


def _both_cut(policy: Tensor, reference: Tensor, kept: Tensor) -> Tensor:
    return _exact(policy, reference / reference[kept].sum(), kept)


def _added(policy: Tensor, reference: Tensor, kept: Tensor) -> Tensor:
    return _exact(policy, reference, kept) + 1 - reference[kept].sum()


def _swapped(policy: Tensor, reference: Tensor, kept: Tensor) -> Tensor:
    cut = policy[kept] / policy[kept].sum()
    r = cut / reference[kept]
    return (cut * (r - 1 - torch.log(r))).sum()


def _case(policy: list[float], reference: list[float], kept: list[bool]) -> Case:
    return Case(
        {
            "policy": torch.tensor(policy, dtype=torch.float64),
            "reference": torch.tensor(reference, dtype=torch.float64),
            "kept": torch.tensor(kept),
        }
    )


def _draw(generator: Generator) -> Case:
    size = integer(generator, 3, 8)
    both = torch.randn(2, size, generator=generator, dtype=torch.float64).softmax(-1)
    kept = torch.arange(size) < integer(generator, 1, size)
    return Case({"policy": both[0], "reference": both[1], "kept": kept})


SUPPORT = Exercise(
    id="kl-support",
    title="a sampler that cuts off the tail",
    concept="kl-estimators",
    minutes=10,
    difficulty="core",
    statement=r"""
    Top-p keeps some tokens, sets the others to 0, and divides by what is left. Let the log-probs of $\pi$ be those of
    this cut policy, as they should be, and let the reference keep all its tokens. Write `my_mean_of_k3(policy,
    reference, kept)`: the mean of $k_3$ on samples of the cut policy. `policy` and `reference` are `[V]` probabilities
    before the cut, `kept` is `[V]` bool; at least one token is kept. By how much is it below the divergence?
    """,
    solution=my_mean_of_k3,
    cases=(
        _case([0.6, 0.3, 0.1], [0.5, 0.3, 0.2], [True, True, False]),
        _case([0.6, 0.3, 0.1], [0.1, 0.1, 0.8], [True, True, False]),
        _case([0.6, 0.3, 0.1], [0.6, 0.3, 0.1], [True, False, False]),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _exact,
            "That is the divergence of the cut policy from the reference. k3's mean is lower: what is the mean of r?",
        ),
        Mistake(_whole, "The cut is missing: tokens that are not kept never come."),
        Mistake(
            _not_renormalised,
            "The kept probabilities no longer sum to 1: divide by what is left.",
        ),
        Mistake(
            _wrong_log_probs,
            "The samples are those of the cut policy, and the log-probs those of the whole one. That is a mistake of "
            "its own; here both are the cut policy's.",
        ),
        Mistake(_both_cut, "You have cut the reference as well. It keeps its tokens."),
        Mistake(
            _added,
            "The sign of what is lost: the mean of r is below 1, since part of the reference is never seen.",
        ),
        Mistake(_swapped, "The ratio is upside down: r is reference over policy."),
    ),
    where="Only kept tokens are drawn. Sum over them, with the probabilities after the cut.",
    idea=r"""
    After the cut the kept probabilities are divided by their sum; the reference's are not. Write $k_3$ for one kept
    token with $r = \pi_{ref}/\pi_{cut}$, and then its mean as a sum over kept tokens alone.
    """,
    outline="""
    ```python
    cut = ...  # [V], 0 where nothing is kept, sums to 1
    r = ... / ...  # of the kept tokens
    return (... * (r - 1 - ...)).sum()
    ```
    """,
    right="Right. The shortfall is exactly the reference's mass outside the nucleus, whatever the policy.",
)
