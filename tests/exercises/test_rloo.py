"""What is peculiar to the exercises on RLOO: solutions against enumeration, the mended bug against the library."""

import pytest
import torch

from rlhf_book.exercises import BUGS, EXERCISES
from rlhf_book.exercises.rloo.maximum import my_added
from rlhf_book.exercises.rloo.shrinkage import my_weight
from rlhf_minimal.functional import advantages

IDS = ["rloo-maximum", "rloo-shrinkage", "rloo-sizes"]


def test_they_stand_in_the_order_of_the_chapter_and_its_depth():
    assert [name for name in EXERCISES if name.startswith("rloo-")] == IDS


def test_the_maximum_is_better_than_the_mean_on_easy_prompts_alone():
    """What the checker says when the answer is right: for G = 4 from p = 0.77 on."""
    better = [p / 1000 for p in range(1, 1000) if my_added(p / 1000, 4) < 1 / 3]
    assert better[0] == pytest.approx(0.77, abs=0.005)
    assert len(better) == round((better[-1] - better[0]) * 1000) + 1  # one stretch


def test_the_guesses_are_worth_the_same_where_the_statement_says():
    p = torch.full((3,), 0.5, dtype=torch.float64)
    assert my_weight(p, 5, 0.25).item() == pytest.approx(0.5)
    assert my_weight(p, 5, 0.2) < 0.5 < my_weight(p, 5, 0.3)


def test_the_mended_bug_is_the_librarys_on_the_completions_that_are_kept():
    generator = torch.Generator().manual_seed(0)
    rewards = torch.rand(5, 4, generator=generator)
    kept = torch.ones(5, 4)
    kept[:, 3] = 0.0
    found = BUGS["rloo-left-out"].mended(rewards, kept)
    three = rewards[:, :3].reshape(-1, 1)
    wanted = advantages.leave_one_out(three, torch.ones_like(three), group_size=3)
    torch.testing.assert_close(found[:, :3], wanted.view(5, 3))
    assert (found[:, 3] == 0).all()
