"""Find the bug: leave-one-out after some completions have been left out."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..bug import Bug


def suspect_leave_one_out(rewards: Tensor, kept: Tensor) -> Tensor:
    """Rewards [P, G]; kept [P, G], 0 where a completion was cut off and is not used."""
    paid = rewards * kept
    others = paid.sum(-1, keepdim=True) - paid
    baseline = others / (rewards.shape[-1] - 1)
    return (rewards - baseline) * kept


def equal_rewards(advantage: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Four completions, all right; the last one was cut off by the token budget."""
    A = advantage(torch.ones(1, 4), torch.tensor([[1.0, 1.0, 1.0, 0.0]]))
    for i, a in enumerate(A[0].tolist()):
        print(f"completion {i + 1}: advantage {a:+.2f}")


def equal_rewards_give_nothing(advantage: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Where all completions that are kept have the same reward, no advantage may remain."""
    for G in (3, 4, 8):
        for left in range(2, G + 1):
            kept = (torch.arange(G) < left).float()[None]
            A = advantage(torch.full((1, G), 0.7), kept)
            most = A.abs().max().item()
            assert most < 1e-6, (
                f"{left} of {G} kept, all paid 0.7: an advantage of {most:.3f}"
            )


def mended_leave_one_out(rewards: Tensor, kept: Tensor) -> Tensor:
    """Rewards [P, G]; kept [P, G], 0 where a completion was cut off and is not used."""
    paid = rewards * kept
    others = paid.sum(-1, keepdim=True) - paid
    baseline = others / (kept.sum(-1, keepdim=True) - 1).clamp(min=1)
    return (rewards - baseline) * kept


LEFT_OUT = Bug(
    id="rloo-left-out",
    title="equal rewards, and yet a push",
    concept="rloo",
    minutes=5,
    statement="""
    Completions that were cut off by the token budget are not trained on, and their rewards are not used (that has a bias
    of its own, section 2, which is not the bug here). The loss
    runs and no warning appears. The block prints the advantages of a group in which every completion that is
    kept is right. What should stand there, and which line is it?
    """,
    wrong=suspect_leave_one_out,
    symptom=equal_rewards,
    reveals=equal_rewards_give_nothing,
    mended=mended_leave_one_out,
    idea="""
    In a group of four with one cut off, how many rewards are in the sum of the others? By which number is it
    divided?
    """,
    outline="""
    ```python
    baseline = others / ...  # [P, 1]: a count of what was summed, never 0
    ```
    """,
    moral="""
    The sum runs over the completions that are kept, the divisor over all of them. So the baseline is too small, and every
    completion of a group with a cut one is pushed up, right or wrong. The habit: count what you have summed.
    Even so the step is no longer free of bias: among the completions that are kept the score has no mean of zero, so the
    baseline itself pushes the policy away from being cut off, or towards it. And where one completion is kept, it has no
    others: the mended line divides by 1 and subtracts nothing.
    """,
)

BUGS = (LEFT_OUT,)
