"""Two roads to one number: what happens to the reward before it is compared."""

from functools import partial

import pytest
import torch

from rlhf_minimal import contrib
from rlhf_minimal.functional import filters, shaping
from tests.identities.batches import G, P, T, cells, close, run, sample


@pytest.mark.parametrize(
    ("length", "penalty"),
    [(1, 0), (79, 0), (80, 0), (81, -0.05), (90, -0.5), (99, -0.95), (100, -1), (101, -1), (150, -1)],
)
def test_soft_overlong_penalty(length, penalty):
    """L = 100, C = 20: free up to 80, a ramp to -1 at 100, -1 beyond. DAPO's eq. 13 on a table of values."""
    rewards = torch.tensor([1.0, -1.0, 0.3], dtype=torch.float64)
    shaped = shaping.soft_overlong(rewards, torch.full((3,), length), budget=100)
    close(shaped, rewards + penalty)


def test_soft_overlong_of_other_fractions():
    lengths = torch.tensor([1, 50, 75, 100])
    rewards = torch.zeros(4, dtype=torch.float64)
    whole = shaping.soft_overlong(rewards, lengths, budget=100, cache_fraction=1.0)
    close(whole, torch.tensor([-0.01, -0.5, -0.75, -1.0], dtype=torch.float64))
    lengths = torch.tensor([99, 100, 101, 200])
    cliff = shaping.soft_overlong(rewards, lengths, budget=100, cache_fraction=0.0)
    close(cliff, torch.tensor([0.0, 0.0, -1.0, -1.0], dtype=torch.float64))


def test_shaping_counts_trained_tokens_and_moves_the_advantage():
    x = sample(0)
    x["mask"] = (torch.arange(T) < torch.tensor([2, 6, 1, 3] * P)[:, None]).double()
    row = cells("dr_grpo", shape=partial(shaping.soft_overlong, cache_fraction=0.5))
    A = run(row, x)[2]  # the budget is T + 2 = 8: free up to 4, so 6 tokens cost a half
    shaped = x["rewards"] - 0.5 * (torch.tensor([0, 1, 0, 0] * P))
    close(A[:, 0], (shaped.view(P, G) - shaped.view(P, G).mean(-1, keepdim=True)).flatten())


@pytest.mark.parametrize(
    ("length", "right", "wrong"), [(0, 3, -4), (25, 2.7071067811865475, -3.4142135623730951), (50, 2, -2), (100, 1, 0)]
)
def test_cosine_between_its_values(length, right, wrong):
    """Half way is the mean of the two ends, a quarter of the way the curve is still nearer to the short one."""
    rewards = torch.tensor([1.0, 0.2, 0.0, -1.0], dtype=torch.float64)
    numbers = {"right_short": 3.0, "right_long": 1.0, "wrong_short": -4.0, "wrong_long": 0.0}
    shaped = contrib.shaping.cosine(rewards, torch.full((4,), length), budget=100, **numbers)
    close(shaped, torch.tensor([right, right, wrong, wrong], dtype=torch.float64))


def test_cosine_stays_where_it_is_behind_the_budget():
    rewards = torch.tensor([1.0, 1.0, 1.0], dtype=torch.float64)
    shaped = contrib.shaping.cosine(rewards, torch.tensor([100, 150, 200]), budget=100)
    close(shaped, torch.full((3,), 0.5, dtype=torch.float64))


def test_length_reward_of_kimi():
    """lambda = .5 - (len - min) / (max - min) for the right answers, min(0, lambda) for the wrong ones."""
    rewards = torch.tensor([1.0, 1.0, 0.0, 0.0, 1.0, 0.0], dtype=torch.float64)
    lengths = torch.tensor([10, 20, 10, 20, 7, 7])
    shaped = contrib.shaping.length_reward(rewards, lengths, group_size=2, coef=0.4)
    bonus = torch.tensor([0.5, -0.5, 0.0, -0.5, 0.0, 0.0], dtype=torch.float64)
    close(shaped, rewards + 0.4 * bonus)
    three = contrib.shaping.length_reward(torch.tensor([1.0, 1.0, 0.0]).double(), torch.tensor([4, 5, 8]), group_size=3)
    close(three, torch.tensor([1.5, 1.25, -0.5], dtype=torch.float64))
    assert torch.equal(contrib.shaping.length_reward(rewards, lengths, group_size=2, coef=0.0), rewards)
    by_one_token = contrib.shaping.length_reward(rewards, torch.tensor([4, 5] * 3), group_size=2)
    close(by_one_token, torch.tensor([1.5, 0.5, 0.0, -0.5, 1.5, -0.5], dtype=torch.float64))


def test_mixed_outcomes_goes_by_spread_and_not_by_the_mean():
    """Equal fractional rewards are as dead as equal zeros, although their mean is neither 0 nor 1."""
    rewards = torch.tensor([0.3, 0.3, 0.3, 0.3, 0.0, 0.0, 1.0, 1.0, 0.3, 0.3000001, 5.0, -5.0])
    kept = filters.mixed_outcomes(rewards, group_size=2)
    assert kept.tolist() == [False] * 8 + [True] * 4
    assert filters.mixed_outcomes(rewards, group_size=4).tolist() == [False] * 4 + [True] * 8


def test_not_truncated():
    truncated = torch.tensor([True, False, True])
    assert contrib.filters.not_truncated(torch.ones(3), truncated=truncated).tolist() == [False, True, False]
