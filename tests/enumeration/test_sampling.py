"""Exact expectations: which distribution was sampled, and entropy."""

from functools import partial

import pytest
import torch

from rlhf_book.tabular import Tree
from rlhf_minimal import ALGORITHMS, Batch, contrib, policy_loss
from rlhf_minimal.functional import corrections, logprobs
from tests.enumeration.exact import TREE, close, cosine, differ, expected, plain, policy, rewards_of

# ── which distribution was sampled ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("sampled", [0.6, 1.0, 1.4])
@pytest.mark.parametrize("scored", [0.6, 1.0, 1.4])
def test_the_score_has_mean_zero_only_at_the_sampling_temperature(sampled, scored):
    """E_behaviour[grad log pi_T] = 0 if and only if T is the temperature that was sampled with."""
    theta = policy()
    logp = logprobs.token_logprobs(theta[TREE.node], TREE.tokens, temperature=scored)
    weights = TREE.probs(theta, sampled).detach()
    score = TREE.grad((weights[:, None] * TREE.mask * logp).sum(), theta)
    if sampled == scored:
        close(score, torch.zeros_like(score))
    else:
        assert score.abs().max() > 1e-2


def test_reinforce_at_a_temperature():
    """Sampled and scored at T = .7: the gradient of J_T. Scored at 1: another direction, and no baseline is free."""
    theta, R, T = policy(), rewards_of(), 0.7
    p = TREE.probs(theta, T)
    exact = TREE.grad((p * R).sum(), theta)

    def gradient(temperature, b):
        def loss(logp, rows):
            return policy_loss(ALGORITHMS["reinforce"], Batch(logp, logp.detach(), TREE.mask[rows], R[rows] - b, 1))

        total = torch.zeros_like(theta)
        for n in range(len(TREE)):
            logp = TREE.logp(theta, temperature)[[n]]
            total -= p[n].item() * TREE.grad(loss(logp, torch.tensor([n])), theta)
        return total

    close(gradient(T, 0.0), exact)
    close(gradient(T, 5.0), exact)
    assert cosine(gradient(1.0, 0.0), exact) < 0.999
    differ(gradient(1.0, 5.0), gradient(1.0, 0.0), by=0.1)


def test_nucleus_samples_are_not_samples_of_the_policy():
    """Sampled with top-p and scored with the full softmax, the score has a mean; scored with the nucleus, none."""
    theta = policy()
    nucleus = TREE.top_p(theta, 0.6)
    weights = TREE.probs(nucleus).detach()
    (full,) = torch.autograd.grad(TREE.sequence_logp(theta), theta, weights)
    (own,) = torch.autograd.grad(TREE.sequence_logp(nucleus), theta, weights)
    assert full.abs().max() > 0.05
    close(own, torch.zeros_like(own))


@pytest.mark.parametrize("high", [1e9, 1.5])
def test_a_masked_weight_is_exact_without_its_band(high):
    """IcePop's weight of whole responses is an importance weight until it leaves responses out."""
    theta, R = policy(), rewards_of()
    mu = theta.detach() + 0.5 * TREE.random_logits(8)
    exact = -TREE.policy_gradient(theta, R)
    correct = partial(contrib.corrections.masked_importance, low=0.0, high=high, level="sequence")
    tables = {"rewards": R, "behaviour": mu, "sampler_logp": TREE.logp(mu)}
    _, corrected = expected(plain(correct=correct), theta, 1, **tables)
    if high > 1e8:
        close(corrected, exact)
        return
    # What is left out is missing, response by response.
    p, q = TREE.probs(theta).detach(), TREE.probs(mu)
    kept = (p / q <= high).double()
    assert 0 < kept.sum() < len(kept)
    close(corrected, -TREE.policy_gradient(theta, R * kept))


@pytest.mark.parametrize("cap", [1e9, 1.0])
def test_truncated_importance_corrects_the_samplers_distribution(cap):
    """Sampled by another engine mu: weighted by the response's pi_old/mu, untruncated, REINFORCE is exact again."""
    theta, R = policy(), rewards_of()
    mu = theta.detach() + 0.5 * TREE.random_logits(8)
    exact = -TREE.policy_gradient(theta, R)
    correct = partial(corrections.truncated_importance, cap=cap, level="sequence")
    tables = {"rewards": R, "behaviour": mu, "sampler_logp": TREE.logp(mu)}
    _, uncorrected = expected(plain(), theta, 1, **tables)
    _, corrected = expected(plain(correct=correct), theta, 1, **tables)
    differ(uncorrected, exact)
    if cap > 1e8:
        close(corrected, exact)
    else:
        differ(corrected, exact)
        assert cosine(corrected, exact) > cosine(uncorrected, exact)


# ── entropy ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_entropy_bonus_is_worth_the_responses_entropy():
    """Summed over tokens, its expected value is coef times the entropy of the whole response (chain rule)."""
    theta = policy()
    table = theta.log_softmax(-1)
    by_token = -(table.exp() * table).sum(-1)[TREE.node].detach()
    value, _ = expected(plain(entropy=0.5), theta, 1, entropy=by_token)
    close(value, -0.5 * TREE.expect(theta, -TREE.sequence_logp(theta)).detach())


def test_entropy_falls_with_the_covariance():
    """One state, a step along the gradient: dH = -Cov(log pi, pi A); along the natural gradient -Cov(log pi, A)."""
    tree = Tree(vocab=5, length=1)
    theta, R = policy(tree), rewards_of(tree)
    p = tree.probs(theta).detach()
    entropy_gradient = tree.grad(-tree.expect(theta, tree.sequence_logp(theta)), theta)
    A = R - (p * R).sum()

    def covariance(x, y):
        return (p * x * y).sum() - (p * x).sum() * (p * y).sum()

    _, gradient = expected(ALGORITHMS["reinforce"], theta, 1, tree, rewards=R)
    close((entropy_gradient * -gradient).sum(), -covariance(p.log(), p * A))
    close((entropy_gradient * A).sum(), -covariance(p.log(), A))  # the natural gradient of a softmax is A itself
