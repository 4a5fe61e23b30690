"""Find the bug: scores of steps, each used as it was once written."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..bug import Bug

# ── one number for a completion ──────────────────────────────────────────────────────────────────────────────────


def suspect_weakest(scores: Tensor, mask: Tensor) -> Tensor:
    """The score [B] of each completion's weakest step; scores and mask are [B, K]."""
    return (scores * mask).amin(dim=1)


def who_wins_the_vote(weakest: Callable[..., Tensor]) -> None:
    """The same five good steps, in a batch with longer and longer completions."""
    for width in (5, 6, 9):
        mask = (torch.arange(width) < 5).double()[None]
        scores = torch.full((1, width), 0.9).double()
        number = weakest(scores, mask).item()
        print(f"5 good steps, longest of the batch {width}: weight {number:.2f}")


def padding_changes_nothing(weakest: Callable[..., Tensor]) -> None:
    """A completion's number does not depend on how long another completion of the batch is."""
    own = torch.tensor([[0.8, 0.3, 0.9]]).double()
    alone = weakest(own, torch.ones(1, 3).double()).item()
    assert abs(alone - 0.3) < 1e-6, f"the weakest of 0.8, 0.3, 0.9 is {alone:.2f}"
    for rubbish in (0.0, 0.1, 1.0):
        wide = torch.cat([own, torch.full((1, 2), rubbish).double()], dim=1)
        mask = torch.tensor([[1.0, 1, 1, 0, 0]]).double()
        padded = weakest(wide, mask).item()
        assert abs(padded - alone) < 1e-6, (
            f"{alone:.2f} alone and {padded:.2f} with padding"
        )


def mended_weakest(scores: Tensor, mask: Tensor) -> Tensor:
    """The score [B] of each completion's weakest step; scores and mask are [B, K]."""
    return scores.masked_fill(mask == 0, float("inf")).amin(dim=1)


PADDED = Bug(
    id="padded-steps",
    title="short completions never win",
    concept="prm-orm",
    minutes=5,
    statement="""
    The weight of a vote is the score of the weakest step. In a batch of completions of different lengths the longest always
    wins, whatever its steps are. The cell prints the weight of one and the same completion in three batches.
    """,
    wrong=suspect_weakest,
    symptom=who_wins_the_vote,
    reveals=padding_changes_nothing,
    mended=mended_weakest,
    idea="""
    Take scores of 0.9 and 0.8 and one place of padding. What is the product with the mask, and what is its minimum?
    """,
    outline="""
    A minimum needs padding that can never be the smallest:

    ```python
    return scores.masked_fill(..., ...).amin(dim=1)
    ```
    """,
    moral="""
    A product with the mask sets padding to 0, which is harmless in a sum and the smallest score there is in a minimum. Each
    aggregate has a neutral element of its own: 0 for a sum, 1 for a product, infinity for a minimum. The habit: append
    padding with rubbish in it, and see that nothing changes.
    """,
)


# ── a payment for steps ──────────────────────────────────────────────────────────────────────────────────────────


def suspect_shaping(potentials: Tensor) -> Tensor:
    """[K] potentials before each step -> [K] payments; the last step ends the text."""
    after = torch.cat([potentials[1:], potentials[-1:]])
    return after - potentials


def what_is_paid(shaping: Callable[..., Tensor]) -> None:
    """Two completions with the same outcome, from the same prompt."""
    for name, potentials in (
        ("ends sure of itself", [0.2, 0.5, 0.9]),
        ("ends in doubt", [0.2, 0.5, 0.3]),
    ):
        paid = shaping(torch.tensor(potentials).double())
        print(f"{name}: paid {paid.sum().item():+.2f} beside the outcome")


def the_sum_is_fixed(shaping: Callable[..., Tensor]) -> None:
    """What all steps together are paid depends on nothing but where they began."""
    generator = torch.Generator().manual_seed(0)
    for K in (1, 2, 5):
        for _ in range(5):
            potentials = torch.rand(K, generator=generator).double()
            total = shaping(potentials).sum()
            assert abs(total + potentials[0]) < 1e-9, (
                f"began at {potentials[0].item():.2f} and was paid {total.item():.2f} in all"
            )


def mended_shaping(potentials: Tensor) -> Tensor:
    """[K] potentials before each step -> [K] payments; the last step ends the text."""
    after = torch.cat([potentials[1:], torch.zeros_like(potentials[:1])])
    return after - potentials


LATE = Bug(
    id="kept-potential",
    title="a shaping that pays for confidence",
    concept="prm-orm",
    minutes=5,
    statement="""
    A PRM's scores are used as a potential, so that nothing can be hacked. Nevertheless the model learns to end its completions with steps
    that the PRM likes, right or wrong. The cell prints what two completions with the same outcome are paid in all.
    """,
    wrong=suspect_shaping,
    symptom=what_is_paid,
    reveals=the_sum_is_fixed,
    mended=mended_shaping,
    idea="""
    Add up all payments of three steps by hand. Which two potentials are left, and which one should be?
    """,
    outline="""
    ```python
    after = torch.cat([..., ...])  # the potential after each step, and after the end
    return after - potentials
    ```
    """,
    moral="""
    After the end the potential is 0, and the last payment takes back what the steps before were paid. Without it the sum is
    the last potential minus the first, and the policy is paid for ending where the PRM is sure. The habit: sum all
    payments of a completion, and see that they depend on its beginning alone.
    """,
)

BUGS = (PADDED, LATE)
