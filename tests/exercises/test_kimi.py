"""What is peculiar to the exercises on Kimi's losses: their solutions against enumeration, their bug against a fit."""

import itertools
import math

import pytest
import torch

from rlhf_book.exercises import BUGS, EXERCISES
from rlhf_book.exercises.kimi.bugs import mended_fit, suspect_fit
from rlhf_book.exercises.kimi.estimate import my_expected_estimate
from rlhf_book.exercises.kimi.gap import my_gap
from rlhf_book.exercises.kimi.pairs import my_pair_loss
from rlhf_book.exercises.kimi.partial import my_log_ratio
from rlhf_book.tabular import Tree

IDS = ["kimi-gap", "kimi-pairs", "kimi-partial", "kimi-estimate"]


def test_they_stand_in_the_order_of_the_chapter_and_its_depth():
    assert [name for name in EXERCISES if name.startswith("kimi-")] == IDS
    assert "slack-spring" in BUGS


@pytest.mark.parametrize("tau", [0.3, 2.0])
def test_the_gap_is_that_of_the_enumerated_policy(tau):
    tree = Tree()
    old = tree.random_logits(2)
    R = tree.lengths
    _, log_z = tree.tilted(old, R / tau)
    expected = tau * log_z - tree.expect(old, R)
    assert torch.isclose(my_gap(R, tree.probs(old), tau), expected)
    assert 0 <= expected <= (R.max() - R.min()) ** 2 / (8 * tau)


def test_the_order_of_the_three_prompts_is_what_the_exercise_says():
    gaps = [my_gap(torch.tensor([1.0, 0.0]).double(), torch.tensor([p, 1 - p]).double(), 0.1) for p in (0.1, 0.5, 0.9)]
    assert gaps[0] > gaps[1] > gaps[2] > 0


def test_pairs_end_at_the_optimum():
    """At the KL-regularised optimum every pair's error is 0; elsewhere it is not."""
    tree, tau = Tree(), 0.4
    old, R = tree.random_logits(1), Tree().lengths
    best, _ = tree.tilted(old, R / tau)
    rows = torch.tensor([0, 3, 7, 9, 2, 5])
    given = tree.logp(old)[rows], tree.mask[rows], R[rows], 3, tau
    assert my_pair_loss(tree.logp(best)[rows], *given) < 1e-20
    assert my_pair_loss(tree.logp(tree.random_logits(4))[rows], *given) > 1e-2


def test_the_mixture_of_two_authors_is_a_policy():
    """First token from one policy, the rest from another: the exponentials of minus the log-ratios sum to 1."""
    tree = Tree()
    one, two = tree.logp(tree.random_logits(0)), tree.logp(tree.random_logits(1))
    cuts = torch.ones(len(tree)).long()
    minus = my_log_ratio(torch.zeros_like(one), one, two, cuts, tree.lengths.long())
    assert torch.isclose((-minus).exp().sum(), torch.tensor(1.0).double())


def test_the_expected_estimate_by_listing_all_draws():
    p, K, tau = 0.3, 4, 0.5
    total = 0.0
    for draws in itertools.product((0, 1), repeat=K):
        chance = math.prod(p if d else 1 - p for d in draws)
        total += chance * tau * math.log(sum(math.exp(d / tau) for d in draws) / K)
    assert my_expected_estimate(p, K, tau) == pytest.approx(total)
    assert p < total < tau * math.log(1 - p + p * math.exp(1 / tau))


def test_the_two_fits_agree_for_one_update_and_not_for_two():
    logits, rewards = torch.zeros(3).double(), torch.tensor([1.0, 0.0, 0.0]).double()
    one, two = ([fit(logits, rewards, 1.0, n, 0.3) for fit in (suspect_fit, mended_fit)] for n in (1, 2))
    assert torch.equal(*one)
    assert not torch.allclose(*two, atol=1e-3)


def test_the_estimate_of_the_constant_needs_as_many_completions_as_the_checker_says():
    true = 0.1 * math.log(1 + 0.1 * math.expm1(10))
    means = {K: my_expected_estimate(0.1, K, 0.1) for K in range(1, 29)}
    assert f"{true:.3f} {means[8]:.3f} {means[16]:.3f}" == "0.770 0.466 0.633"
    assert [K for K, mean in means.items() if true - mean < 0.05] == [28]
