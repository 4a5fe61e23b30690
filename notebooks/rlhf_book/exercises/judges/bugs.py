"""Find the bug: criteria that are dropped at random."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..bug import Bug


def suspect_rubric(marks: Tensor, generator: torch.Generator) -> Tensor:
    """[P, G, K] marks -> [P, G]: the sum of the criteria that are kept this time."""
    kept = torch.rand(marks.shape, generator=generator) < 0.5
    return (marks * kept).sum(-1)


def a_group_of_equals(rubric: Callable[..., Tensor]) -> None:
    """One prompt, four times the same completion, with the marks 1, 1 and 3."""
    generator = torch.Generator().manual_seed(1)
    marks = torch.tensor([1.0, 1.0, 3.0]).expand(1, 4, 3)
    for step in range(3):
        rewards = rubric(marks, generator)[0]
        print(f"step {step}: rewards {rewards.tolist()}")


def equals_are_paid_alike(rubric: Callable[..., Tensor]) -> None:
    """Equal completions of one prompt are paid alike, and over many draws each criterion is kept in about half of them."""
    generator = torch.Generator().manual_seed(0)
    powers = torch.tensor([1.0, 2.0, 4.0])  # a sum says which were kept
    seen = []
    for _ in range(200):
        rewards = rubric(powers.expand(3, 4, 3), generator)
        assert rewards.shape == (3, 4), f"rewards of shape {list(rewards.shape)}"
        assert (rewards == rewards[:, :1]).all(), (
            "equal completions of one prompt get different rewards"
        )
        seen.append(rewards[:, 0])
    sums = torch.cat(seen).long()  # [600]
    for k in range(3):
        share = (sums // 2**k % 2).double().mean().item()
        assert 0.35 < share < 0.65, f"criterion {k} is kept in {share:.2f} of the draws"
    assert len(set(sums.tolist())) == 8, "some choices of criteria never occur"


def mended_rubric(marks: Tensor, generator: torch.Generator) -> Tensor:
    """[P, G, K] marks -> [P, G]: the sum of the criteria that are kept this time."""
    P, _, K = marks.shape
    kept = torch.rand(P, 1, K, generator=generator) < 0.5  # one choice a prompt
    return (marks * kept).sum(-1)


OWN_CRITERIA = Bug(
    id="own-criteria",
    title="a group that is not compared",
    concept="rubric-dropout",
    minutes=5,
    statement="""
    Criteria are dropped at random, and the run learns much more slowly than one without dropping. Each line of the reward function was tested. The cell lets it mark a group in which all four completions are the same.
    """,
    wrong=suspect_rubric,
    symptom=a_group_of_equals,
    reveals=equals_are_paid_alike,
    mended=mended_rubric,
    idea="""
    What should the rewards of equal completions be? An advantage compares the completions of a prompt: what has to be
    the same for all of them?
    """,
    outline="""
    ```python
    kept = torch.rand(..., generator=generator) < 0.5
    return (marks * kept).sum(-1)
    ```
    """,
    moral="""
    Each completion was marked by criteria of its own, so the advantage was mostly luck: it said who had been asked the easier questions. The
    habit: hand a reward function a group of equals.
    """,
)

BUGS = (OWN_CRITERIA,)
