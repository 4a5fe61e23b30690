"""What the answers to interview questions say, where no other test says it: small, exact, by hand or by enumeration."""

import dataclasses
import itertools
import math
from functools import partial

import pytest
import torch

from rlhf_minimal import ALGORITHMS, Batch, gradient_weight, policy_loss, token_weights
from rlhf_minimal.functional import advantages, gates


def test_grpo_needs_no_values_and_still_a_reference():
    """PPO reads values and a reference, GRPO a group and a reference; without its KL GRPO needs the group alone."""
    assert ALGORITHMS["ppo"].needs == {"values", "ref_logp"}
    assert ALGORITHMS["grpo"].needs == {"group", "ref_logp"}
    assert dataclasses.replace(ALGORITHMS["grpo"], kl=()).needs == {"group"}


@pytest.mark.parametrize("G", [2, 3, 6])
def test_the_group_mean_estimates_the_value_of_the_prompt(G):
    """Every group of G binary rewards is listed: the mean has expectation p and variance p(1-p)/G."""
    p, first, second = 0.3, 0.0, 0.0
    for group in itertools.product((0.0, 1.0), repeat=G):
        rewards = torch.tensor(group, dtype=torch.float64)
        centred = advantages.group_centered(rewards[:, None], torch.ones(G, 1), group_size=G)[:, 0]
        baseline = (rewards - centred)[0].item()
        chance = math.prod(p if reward else 1 - p for reward in group)
        first, second = first + chance * baseline, second + chance * baseline**2
    assert first == pytest.approx(p, abs=1e-12)
    assert second - first**2 == pytest.approx(p * (1 - p) / G, abs=1e-12)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_an_infinite_group_ascends_twice_the_arcsine_of_the_root(p):
    """A prompt's weight, E[sqrt(k(G-k))]/(G p(1-p)), goes to the derivative of 2 arcsin sqrt(p) as G grows."""
    G, step = 4000, 1e-6
    k = torch.arange(G + 1, dtype=torch.float64)
    counts = torch.distributions.Binomial(G, torch.tensor(p, dtype=torch.float64))
    chance = counts.log_prob(k).exp()
    z = [my_weight(G, p, chance, k), (math.asin(math.sqrt(p + step)) - math.asin(math.sqrt(p - step))) / step]
    assert z[0] == pytest.approx(z[1], rel=2e-3)
    assert abs(z[1] - 1) > 0.1  # while the plain policy gradient has weight 1


def my_weight(G, p, chance, k):
    """d/dp of the expected z-score of a right completion: E[A R] over p(1-p), from k of G right and the library's A."""
    chosen = torch.tensor([1, G // 10, G // 2, G - 1])
    for right in chosen.tolist():  # the library's z-scores are the closed form that the sum below uses
        rewards = (torch.arange(G) < right).double()[:, None]
        A = advantages.group_normalized(rewards, torch.ones(G, 1), group_size=G, eps=1e-12, ddof=0)[0, 0].item()
        assert A == pytest.approx(math.sqrt((G - right) / right), rel=1e-9)
    return ((chance * (k * (G - k)).sqrt()).sum() / (G * p * (1 - p))).item()


def test_sampling_until_an_outcome_differs_moves_the_mean():
    """Draw until two outcomes differ, eight at most: the expected mean of the group is no longer p."""
    p, most, mean, total = 0.1, 8, 0.0, 0.0
    for first, chance_of_first in ((1.0, p), (0.0, 1 - p)):
        for size in range(2, most + 1):  # size - 1 equal outcomes, then a different one
            chance = chance_of_first ** (size - 1) * (1 - chance_of_first)
            mean += chance * ((size - 1) * first + (1 - first)) / size
            total += chance
        mean += chance_of_first**most * first  # nothing differed
        total += chance_of_first**most
    assert total == pytest.approx(1)
    assert mean > p + 0.05


def test_the_loss_starts_at_zero_and_its_gradient_does_not():
    """GRPO's first step: value 0 to rounding, gradient not; once the policy has moved, the value rises."""
    generator = torch.Generator().manual_seed(0)
    logp = (-torch.rand(8, 5, generator=generator, dtype=torch.float64) - 0.5).requires_grad_()
    mask = (torch.arange(5) < torch.tensor([1, 2, 3, 4, 5, 1, 3, 5])[:, None]).double()
    rewards = torch.tensor([1.0, 0, 0, 0, 1, 1, 0, 1], dtype=torch.float64)
    start = logp.detach()
    loss = policy_loss(ALGORITHMS["grpo"], Batch(logp, start, mask, rewards, 4, ref_logp=start))
    (gradient,) = torch.autograd.grad(loss, logp)
    assert abs(loss.item()) < 1e-12
    assert gradient.abs().max() > 0.01
    moved = (start - 0.1 * gradient / gradient.norm()).requires_grad_()
    on_policy_again = Batch(moved, moved.detach(), mask, rewards, 4, ref_logp=start)
    assert policy_loss(ALGORITHMS["grpo"], on_policy_again).item() > 1e-6  # it rises, while it learns


def test_who_is_pushed_how_hard_by_length_and_sign():
    """Two tokens against eight: a token's weight falls with length under GRPO only, a response's total grows under the
    token mean only; the sign of the advantage decides the direction and not the weight.
    """
    mask = (torch.arange(8) < torch.tensor([2, 8])[:, None]).double()
    grpo, dapo = token_weights("grpo", mask), token_weights("dapo", mask)
    assert grpo[0, 0] == pytest.approx(4 * grpo[1, 0])
    assert grpo.sum(1).tolist() == pytest.approx([0.5, 0.5])
    assert dapo[0, 0] == pytest.approx(dapo[1, 0])
    assert dapo.sum(1).tolist() == pytest.approx([0.2, 0.8])
    for name, weights in (("grpo", grpo), ("dapo", dapo)):
        for signs in itertools.product((1.0, -1.0), repeat=2):
            A = torch.tensor(signs, dtype=torch.float64)
            logp = torch.zeros(2, 8, dtype=torch.float64, requires_grad=True)
            row = dataclasses.replace(ALGORITHMS[name], kl=(), shape=None)
            batch = Batch(logp, logp.detach(), mask, torch.zeros(2, dtype=torch.float64), 2, advantages=A)
            (gradient,) = torch.autograd.grad(policy_loss(row, batch), logp)
            torch.testing.assert_close(-gradient, weights * A[:, None])


@pytest.mark.parametrize("high", [0.2, 0.28])
def test_the_upper_bound_leaves_rare_tokens_little_room(high):
    """A good token is pushed up to p(1 + high) and no further; above 1/(1 + high) nothing reaches the bound."""
    row = dataclasses.replace(ALGORITHMS["grpo"], kl=(), gate=partial(gates.clip, low=0.2, high=high))
    for p in (0.001, 0.3, 0.9):
        highest = min(p * (1 + high), 1.0)
        below = gradient_weight(row, torch.tensor(0.999 * highest / p), 1.0)
        assert below > 0
        if p * (1 + high) < 1:
            assert gradient_weight(row, torch.tensor(1.001 * highest / p), 1.0) == 0
            assert highest - p == pytest.approx(high * p)
        else:
            assert p > 1 / (1 + high)
            assert 1 / p < 1 + high  # the largest ratio there is
    assert gradient_weight(row, torch.tensor(1.0), 1.0) == 1  # where every batch begins, at any p
