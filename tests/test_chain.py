"""The chain of letters on which a critic can pay: its score, its advantages, and what a critic knows."""

import itertools

import pytest
import torch
from torch.testing import assert_close

from rlhf_book.chain import LETTERS, Way, advantages, at_chosen_rate, expected, rewards_of, sample, score, train
from rlhf_minimal.functional import advantages as library

SEEDS, RATES, SHORT = [0, 1, 2], [0.3, 1.0], 6


def test_the_expected_reward_and_the_best_are_those_of_all_completions():
    pay = rewards_of([4], length=4)
    logits = torch.randn(pay.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    table, pi = pay[0], logits[0].softmax(-1)
    sums, chances = [], []
    for letters in itertools.product(range(LETTERS), repeat=4):
        steps = list(zip(range(4), (0, *letters), letters, strict=False))
        sums.append(sum(table[step] for step in steps))
        chances.append(torch.stack([pi[step] for step in steps]).prod())
    sums, chances = torch.stack(sums), torch.stack(chances)
    assert_close(expected(pay, lambda q, t: (logits.softmax(-1)[:, t] * q).sum(-1))[0], (chances * sums).sum())
    assert_close(expected(pay, lambda q, t: q.amax(-1))[0], sums.max())
    assert_close(score(logits, pay)[0], ((chances * sums).sum() - sums.mean()) / (sums.max() - sums.mean()))


def test_letters_are_sampled_with_the_policys_probabilities():
    pi = torch.rand(1, 2, LETTERS, LETTERS, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    pi = pi / pi.sum(-1, keepdim=True)
    u = torch.rand(1, 40_000, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    before, after = sample(pi, u)
    assert (before[0, :, 0] == 0).all()
    assert torch.equal(before[0, :, 1], after[0, :, 0])
    for first in range(LETTERS):
        came = after[0, before[0, :, 1] == first, 1]
        share = torch.bincount(came, minlength=LETTERS) / len(came)
        assert_close(share.double(), pi[0, 1, first], atol=0.02, rtol=0)


@pytest.mark.parametrize("lam", [0.0, 0.8, 1.0])
def test_the_critics_advantages_are_the_librarys(lam):
    r, V = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    theirs = library.gae(r.flatten(0, 1), torch.ones(12, 5), values=V.flatten(0, 1), lam=lam)
    assert_close(advantages(Way(lam, "critic"), r, V).flatten(0, 1), theirs)


def test_without_a_critic_the_return_less_the_mean_of_the_others():
    r = torch.randn(2, 4, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    returns = advantages(Way(), r, r)
    assert_close(returns[1, 2, 3], r[1, 2, 3:].sum())
    others = torch.cat([returns[:, :2], returns[:, 3:]], 1).mean(1)
    assert_close(advantages(Way(subtract="mean"), r, r)[:, 2], returns[:, 2] - others)


@pytest.mark.parametrize("lam", [0.0, 0.8, 1.0])
def test_a_critic_that_knows_what_was_earned_does_not_see_when_it_is_paid(lam):
    at_once = train(Way(lam, "critic"), SEEDS, RATES, 10, length=SHORT)
    knows = train(Way(lam, "critic", at_the_end=True, knows_earned=True), SEEDS, RATES, 10, length=SHORT)
    blind = train(Way(lam, "critic", at_the_end=True), SEEDS, RATES, 10, length=SHORT)
    assert_close(knows, at_once, atol=1e-9, rtol=0)
    assert (blind - at_once).abs().max() > 0.01


def test_seeds_and_rates_do_not_touch_each_other():
    together = train(Way(0.8, "critic"), SEEDS, RATES, 5, length=SHORT)
    for i, rate in enumerate(RATES):
        for j, seed in enumerate(SEEDS):
            assert_close(train(Way(0.8, "critic"), [seed], [rate], 5, length=SHORT)[0, 0], together[i, j])


@pytest.mark.parametrize("subtract", ["nothing", "mean", "critic"])
def test_every_way_learns(subtract):
    assert (train(Way(subtract=subtract), SEEDS, [0.0], 3, length=SHORT).abs() < 1e-12).all()
    assert train(Way(subtract=subtract), SEEDS, [1.0], 60, length=SHORT).mean() > 0.6


def test_a_seed_has_no_say_in_its_own_rate():
    scores = torch.tensor([[0.5, 0.5, 0.5], [0.4, 0.4, 2.0]])
    values, chosen = at_chosen_rate(scores)
    assert chosen.tolist() == [1, 1, 0]
    assert values.tolist() == pytest.approx([0.4, 0.4, 0.5])


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: Way(subtract="median"), "choose nothing, mean or critic"),
        (lambda: Way(subtract="mean", at_the_end=True, knows_earned=True), "knows_earned needs"),
        (lambda: Way(subtract="critic", knows_earned=True), "knows_earned needs"),
        (lambda: at_chosen_rate(torch.ones(3, 1)), "two seeds or more"),
    ],
)
def test_a_setting_that_makes_no_sense_says_so(wrong, says):
    with pytest.raises(ValueError, match=says):
        wrong()
