"""Exact expectations: policy gradients, baselines and critics."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from rlhf_minimal import ALGORITHMS, contrib
from rlhf_minimal.functional import advantages, aggregation
from tests.enumeration.exact import SMALL, TREE, close, cosine, differ, expected, plain, policy, rewards_of, unclipped

# ── policy gradients and baselines ───────────────────────────────────────────────────────────────────────────


def test_reinforce_is_unbiased():
    """E[gradient of the REINFORCE row] = -grad J, and its value is -E[R |o|]: value and gradient are two things."""
    theta, R = policy(), rewards_of()
    value, gradient = expected(ALGORITHMS["reinforce"], theta, 1, rewards=R)
    close(gradient, -TREE.policy_gradient(theta, R))
    close(value, -TREE.expect(theta, R * TREE.lengths).detach())


@pytest.mark.parametrize("b", [-3.0, 0.5, 10.0])
def test_a_baseline_independent_of_the_action_is_free(b):
    """Any constant baseline leaves the expected gradient alone."""
    theta, R = policy(), rewards_of()
    algorithm = plain(advantage=contrib.advantages.given_baseline)
    _, gradient = expected(algorithm, theta, 1, rewards=R, baseline=torch.full_like(R, b))
    close(gradient, -TREE.policy_gradient(theta, R))


def test_a_baseline_that_looks_at_the_action_is_not_free():
    """The control: a baseline correlated with the response itself biases the gradient."""
    theta, R = policy(), rewards_of()
    algorithm = plain(advantage=contrib.advantages.given_baseline)
    _, gradient = expected(algorithm, theta, 1, rewards=R, baseline=R.clamp(min=0))
    differ(gradient, -TREE.policy_gradient(theta, R))


def test_the_best_constant_baseline_weighs_by_the_score():
    """Variance is least at b = E[|score|^2 R] / E[|score|^2], not at E[R]; both beat none here, and none is biased."""
    theta, R = policy(), rewards_of() + 2.0
    p = TREE.probs(theta).detach()
    scores = torch.stack([TREE.grad(TREE.sequence_logp(theta)[n], theta) for n in range(len(TREE))])
    weight = scores.flatten(1).square().sum(1)

    def variance(b):
        g = (R - b)[:, None, None] * scores
        mean = (p[:, None, None] * g).sum(0)
        close(mean, TREE.policy_gradient(theta, R))
        return (p * (g - mean).flatten(1).square().sum(1)).sum()

    best, mean = (p * weight * R).sum() / (p * weight).sum(), (p * R).sum()
    assert variance(best) < variance(mean) < variance(0.0)
    assert variance(best) < min(variance(best - 1e-3), variance(best + 1e-3))


@pytest.mark.parametrize("G", [2, 3])
def test_rloo_ascends_the_regularised_reward(G):
    """RLOO's expected gradient is -( grad E[R] - beta grad KL(pi || ref) ), exactly, at any G."""
    tree = SMALL
    theta, ref, R = policy(tree), tree.random_logits(5), rewards_of(tree)
    (beta,) = (term.coef for term in ALGORITHMS["rloo"].kl)
    _, gradient = expected(ALGORITHMS["rloo"], theta, G, tree, rewards=R, ref=ref)
    close(gradient, -tree.grad(tree.expect(theta, R) - beta * tree.kl(theta, ref), theta))
    differ(gradient, -tree.policy_gradient(theta, R))


@pytest.mark.parametrize("G", [2, 3, 4])
def test_the_group_mean_only_scales(G):
    """A group mean that includes the sample itself costs the factor (G-1)/G, and no direction."""
    tree = SMALL
    theta, R = policy(tree), rewards_of(tree)
    _, centred = expected(plain(advantage=advantages.group_centered), theta, G, tree, rewards=R)
    _, left_out = expected(plain(advantage=advantages.leave_one_out), theta, G, tree, rewards=R)
    close(left_out, -tree.policy_gradient(theta, R))
    close(centred, -(G - 1) / G * tree.policy_gradient(theta, R))


@pytest.mark.parametrize("G", [2, 3])
def test_dr_grpo_is_the_policy_gradient_up_to_a_constant(G):
    """At ratio 1 (the clip then is inert) Dr. GRPO's expected gradient is -(G-1)/G grad J / budget."""
    tree, budget = SMALL, 9
    theta, R = policy(tree), rewards_of(tree)
    _, gradient = expected(ALGORITHMS["dr_grpo"], theta, G, tree, rewards=R, budget=budget)
    close(gradient, -(G - 1) / (G * budget) * tree.policy_gradient(theta, R))


# ── critics ──────────────────────────────────────────────────────────────────────────────────────────────────


def ppo_sum(lam, **cells):
    """PPO without clip, whitening and 1/|o|, which all bias: what is left is its advantage."""
    return unclipped(
        "ppo", advantage=partial(advantages.gae, gamma=1.0, lam=lam), aggregate=aggregation.sequence_sum, **cells
    )


def test_gae_with_lambda_one_is_monte_carlo_minus_v():
    """lambda = gamma = 1: A_t = (sum of rewards to go) - V(s_t), the critic's later values cancel."""
    R, V = rewards_of(), torch.randn(len(TREE), 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    token_rewards = TREE.outcome(R)
    A = advantages.gae(token_rewards, TREE.mask, values=V, gamma=1.0, lam=1.0)
    close(A * TREE.mask, (R[:, None] - V) * TREE.mask)


def test_gae_lambda_one_is_unbiased_with_any_critic():
    """A wrong critic is only a baseline when lambda = 1."""
    theta, R = policy(), rewards_of()
    wrong = torch.randn(len(TREE.prefixes), generator=torch.Generator().manual_seed(1), dtype=torch.float64)[TREE.node]
    _, gradient = expected(ppo_sum(1.0), theta, 1, rewards=R, values=wrong)
    close(gradient, -TREE.policy_gradient(theta, R))


@pytest.mark.parametrize("lam", [0.0, 0.5, 0.95])
def test_gae_is_unbiased_for_every_lambda_with_the_exact_critic(lam):
    """With V = V^pi every lambda gives grad J; with a wrong critic and lambda < 1 none of these does."""
    theta, R = policy(), rewards_of()
    exact = TREE.values(theta, TREE.outcome(R))
    _, gradient = expected(ppo_sum(lam), theta, 1, rewards=R, values=exact)
    close(gradient, -TREE.policy_gradient(theta, R))

    wrong = torch.randn(len(TREE.prefixes), generator=torch.Generator().manual_seed(1), dtype=torch.float64)[TREE.node]
    _, biased = expected(ppo_sum(lam), theta, 1, rewards=R, values=wrong)
    differ(biased, -TREE.policy_gradient(theta, R))


def test_ppo_reward_kl_with_the_critic_of_that_reward():
    """KL in the reward: with the exact critic of the penalised rewards, PPO ascends E[R] - beta KL."""
    theta, ref, R = policy(), TREE.random_logits(4), rewards_of()
    (term,) = ALGORITHMS["ppo"].kl
    penalised = TREE.outcome(R) - term.coef * (TREE.logp(theta) - TREE.logp(ref)).detach()
    _, gradient = expected(
        ppo_sum(0.95, kl=(term,)), theta, 1, rewards=R, ref=ref, values=TREE.values(theta, penalised)
    )
    close(gradient, -TREE.grad(TREE.expect(theta, R) - term.coef * TREE.kl(theta, ref), theta))


def test_reinforce_pp_without_its_whitening_is_unbiased_and_with_it_is_not():
    """Reward-to-go with k1 inside is exact; dividing by a batch's own spread couples the responses."""
    tree = SMALL
    theta, ref, R = policy(tree), tree.random_logits(4), rewards_of(tree)
    row = ALGORITHMS["reinforce_pp"]
    (term,) = row.kl
    exact = -tree.grad(tree.expect(theta, R) - term.coef * tree.kl(theta, ref), theta)
    bare = unclipped("reinforce_pp", kl=(term,), aggregate=aggregation.sequence_sum)
    _, gradient = expected(bare, theta, 3, tree, rewards=R, ref=ref)
    close(gradient, exact)
    _, whitened = expected(replace(bare, normalize=row.normalize), theta, 3, tree, rewards=R, ref=ref)
    assert 0.5 < cosine(whitened, exact) < 0.999
