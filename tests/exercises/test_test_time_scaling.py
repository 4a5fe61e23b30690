"""What is peculiar to the exercises on test-time scaling: their solutions against draws and against the library."""

import math

import torch

from rlhf_book.exercises import BUGS, EXERCISES
from rlhf_book.exercises.test_time_scaling.all_of import my_all_right
from rlhf_book.exercises.test_time_scaling.best_of import my_verified_best
from rlhf_book.exercises.test_time_scaling.next_sample import my_gain
from rlhf_book.exercises.test_time_scaling.vote import my_vote_chance
from rlhf_minimal.evaluate import pass_at

IDS = ["tts-all-right", "tts-next-sample", "tts-vote-chance", "tts-verified-best"]


def test_they_stand_in_the_order_of_the_chapter_and_its_depth():
    assert [name for name in EXERCISES if name.startswith("tts-")] == IDS
    assert "votes-that-hurt" in BUGS


def test_all_right_is_unbiased_and_the_complement_of_one_wrong():
    p, n, k = 0.3, 6, 3
    law = [math.comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)]
    estimates = my_all_right(torch.arange(n + 1), n, k).tolist()
    assert abs(sum(a * b for a, b in zip(law, estimates, strict=True)) - p**k) < 1e-12
    assert all(abs(x - (1 - pass_at(k, n - c, n))) < 1e-12 for c, x in enumerate(estimates))


def test_after_n_samples_the_next_pays_most_at_one_in_n_plus_1():
    p = torch.linspace(0.001, 0.999, 999, dtype=torch.float64)
    for n in (1, 4, 9):
        gains = my_gain(p, torch.ones(999), torch.full((999,), n))
        assert abs(p[gains.argmax()].item() - 1 / (n + 1)) < 2e-3


def test_two_votes_are_worth_one_and_many_elect_the_mode():
    q = torch.tensor([0.4, 0.35, 0.25], dtype=torch.float64)
    assert abs(my_vote_chance(q, 2) - 0.4) < 1e-12
    falling = [my_vote_chance(torch.tensor([0.3, 0.5, 0.2]).double(), n) for n in (1, 3, 5, 7)]
    assert falling == sorted(falling, reverse=True)


def test_the_kl_of_a_verified_best_stays_below_both_bounds():
    for p in (0.05, 0.2, 0.7):
        for n in (2, 8, 64):
            share, distance = my_verified_best(p, n)
            assert abs(share - (1 - (1 - p) ** n)) < 1e-12
            assert 0 < distance < math.log(n) - (n - 1) / n
            assert distance < math.log(1 / p) + 1e-12
