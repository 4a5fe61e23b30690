"""What is peculiar to the exercises on self-play: their solutions against listings and against training."""

import pytest
import torch

from rlhf_book.exercises import BUGS, EXERCISES
from rlhf_book.exercises.self_play.capped import my_kept
from rlhf_book.exercises.self_play.dose import my_dose
from rlhf_book.exercises.self_play.rounds import my_spin_after
from tests.exercises.answers.self_play import listed_kept

IDS = ["play-capped", "play-dose", "play-spin-rounds"]


def test_they_stand_in_the_order_of_the_chapter():
    assert [name for name in EXERCISES if name.startswith("play-")] == IDS
    assert "votes-for-nothing" in BUGS


def test_kept_rows_are_those_of_a_listing():
    for p, G, most in ((0.2, 5, 2), (0.9, 6, 6), (0.5, 4, 1)):
        assert my_kept(torch.tensor([p], dtype=torch.float64), G, most).item() == pytest.approx(listed_kept(p, G, most))


def test_the_dose_turns_the_policy_gradient():
    """Expected steps of a softmax policy: just above the dose the right answer wins, just below it loses."""
    yes, found = torch.tensor([0.5, 0.8, 0.3, 0.1], dtype=torch.float64), 0.7
    for nudge, wins in ((0.02, True), (-0.02, False)):
        d = my_dose(yes, found) + nudge
        paid = (1 - d) * yes
        paid[0] += d * found
        z = torch.zeros(4, dtype=torch.float64)
        for _ in range(4000):
            q = z.softmax(-1)
            z = z + 5 * q * (paid - (q * paid).sum())
        assert (z.argmax().item() == 0) is wins


def test_spin_beyond_one_half_settles_and_below_does_not():
    data, start = torch.tensor([0.6, 0.4]).double(), torch.tensor([0.5, 0.5]).double()
    far = {beta: (my_spin_after(data, start, beta, 12) - data).abs().max().item() for beta in (0.4, 0.6, 1.0, 3.0)}
    assert far[0.4] > 0.3
    assert far[1.0] < 1e-6
    assert max(far[0.6], far[3.0]) < 0.01
