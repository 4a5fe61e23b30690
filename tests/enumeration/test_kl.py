"""Exact expectations: the KL estimators, in the loss and in the reward."""

from dataclasses import replace

import pytest
import torch

from rlhf_minimal import ALGORITHMS, KL
from rlhf_minimal.functional import advantages, aggregation, kl
from tests.enumeration.exact import ESTIMATORS, TREE, close, cosine, differ, expected, plain, policy, rewards_of


@pytest.fixture
def pair():
    """Two policies that are far apart, so that a wrong direction or estimator cannot hide."""
    theta, ref = policy(seed=0), TREE.random_logits(1, scale=1.5)
    assert TREE.kl(theta, ref) > 0.5
    assert abs(TREE.kl(theta, ref) - TREE.kl(ref, theta)) > 0.1
    return theta, ref


@pytest.mark.parametrize(("name", "unbiased"), [("k1", True), ("k2", False), ("k3", True)])
def test_estimator_values(pair, name, unbiased):
    """E[k1] = E[k3] = KL(pi || ref), summed over tokens or taken of the whole response; k2 is biased both ways."""
    theta, ref = pair
    logp, ref_logp, estimator = TREE.logp(theta).detach(), TREE.logp(ref), ESTIMATORS[name]
    exact = TREE.kl(theta, ref)
    by_token = TREE.expect(theta, estimator(logp, ref_logp))
    by_response = TREE.expect(theta, estimator(logp.sum(1), ref_logp.sum(1)))
    if unbiased:
        close(by_token, exact)
        close(by_response, exact)
    else:
        differ(by_token, exact, by=0.02)
        differ(by_response, exact, by=0.02)


def kl_loss(pair, estimator, *, behaviour=None, **options):
    """Expected value and gradient of a KL term alone: zero reward, coefficient 1, sum over tokens."""
    theta, ref = pair
    algorithm = plain(kl=(KL(1.0, estimator, place="loss", **options),))
    return expected(algorithm, theta, 1, ref=ref, old=behaviour)


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_kl_in_loss_value(pair, estimator, level):
    """As a loss term, too, k1 and k3 have the exact KL as their value, at either level."""
    value, _ = kl_loss(pair, estimator, level=level)
    close(value, TREE.kl(*pair).detach())


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_k1_in_the_loss_has_no_gradient(pair, level):
    """E[grad k1] = E[score] = 0: a leash tied to nothing."""
    _, gradient = kl_loss(pair, "k1", level=level)
    close(gradient, torch.zeros_like(gradient))


def fixed_prefix_gradient(theta, divergence):
    """The gradient of sum_s P(s) divergence(s) with P(s) held fixed: what token-level terms can see at most."""
    return TREE.grad((TREE.visits(theta).detach() * divergence).sum(), theta)


def test_k2_in_the_loss(pair):
    """k2 of the whole response has exactly grad KL(pi || ref). Token by token it has the next-token KLs' gradients,

    sum_s P(s) grad KL(pi(.|s) || ref(.|s)): the part of grad KL that comes from visiting other prefixes is missing.
    """
    theta, ref = pair
    exact = TREE.grad(TREE.kl(theta, ref), theta)
    _, by_response = kl_loss(pair, "k2", level="sequence")
    _, by_token = kl_loss(pair, "k2", level="token")
    close(by_response, exact)
    close(by_token, fixed_prefix_gradient(theta, TREE.token_kl(theta, ref)))
    differ(by_token, exact, by=1e-2)


def test_k3_in_the_loss_is_the_forward_kl(pair):
    """k3's gradient is grad KL(ref || pi), not grad KL(pi || ref), whose value it estimates. Token by token:

    sum_s P(s) grad KL(ref(.|s) || pi(.|s)), with the policy's own prefixes held fixed.
    """
    theta, ref = pair
    forward, reverse = TREE.kl(ref, theta), TREE.kl(theta, ref)
    _, by_response = kl_loss(pair, "k3", level="sequence")
    close(by_response, TREE.grad(forward, theta))
    differ(by_response, TREE.grad(reverse, theta), by=1e-2)
    _, by_token = kl_loss(pair, "k3", level="token")
    close(by_token, fixed_prefix_gradient(theta, TREE.token_kl(ref, theta)))


def test_the_size_of_the_log_ratio_in_the_loss_is_the_total_variation(pair):
    """|log pi - log ref| summed has the gradient of sum_y |pi - ref|; its value is above the KL's."""
    theta, ref = pair
    value, by_response = kl_loss(pair, "absolute", level="sequence")
    close(by_response, TREE.grad((TREE.probs(theta) - TREE.probs(ref).detach()).abs().sum(), theta))
    assert value > TREE.kl(theta, ref) + 0.01


def test_under_a_mean_within_each_response_the_estimators_lose_their_gradients():
    """1/|o| depends on later tokens. k1 pulls, exactly along grad E[1/|o|], which is length; k2 and k3 point beside
    the gradients that they have as sums; their values part, and neither is the mean next-token KL."""
    theta, ref = policy(), TREE.random_logits(5)
    for_each, chance = 1 / TREE.lengths, TREE.probs(theta).detach()
    at_token = TREE.token_kl(theta, ref)[TREE.node].detach()  # [15, 3]: the exact KL of each token, given its prefix
    exact = (chance * (at_token * TREE.mask).sum(1) * for_each).sum()
    values = {}
    for name in ESTIMATORS:
        by_sum = expected(plain(kl=(KL(1.0, name),)), theta, 1, ref=ref)
        leash = plain(kl=(KL(1.0, name),), aggregate=aggregation.sequence_mean)
        value, by_mean = expected(leash, theta, 1, ref=ref)
        values[name] = value.item()
        if name == "k1":
            close(by_sum[1], torch.zeros_like(theta))
            close(by_mean, TREE.policy_gradient(theta, for_each))
            assert by_mean.norm() > 0.05
        else:
            assert cosine(by_sum[1], by_mean) < 0.97
    assert values["k3"] - values["k1"] > 0.2
    assert min(abs(values[name] - exact.item()) for name in ("k1", "k3")) > 0.08


def test_the_rows_own_kl_penalty_is_not_the_gradient_of_the_forward_kl():
    """GRPO's row divides its KL term by |o|, as it does its objective."""
    assert ALGORITHMS["grpo"].aggregate is aggregation.sequence_mean
    theta, ref = policy(), TREE.random_logits(5)
    leash = replace(ALGORITHMS["grpo"], advantage=advantages.returns_to_go)  # of rewards that are all 0
    _, gradient = expected(leash, theta, 1, ref=ref)
    _, by_sum = expected(replace(leash, aggregate=aggregation.sequence_sum), theta, 1, ref=ref)
    assert cosine(gradient, by_sum) < 0.97


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_kl_weighted_by_the_token_ratio(pair, estimator):
    """r k1 and r k3 have the gradient of the next-token KLs, prefixes fixed, on-policy."""
    theta, ref = pair
    value, gradient = kl_loss(pair, estimator, weighted=True, level="token")
    close(value, TREE.kl(theta, ref).detach())
    close(gradient, fixed_prefix_gradient(theta, TREE.token_kl(theta, ref)))


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_kl_weighted_by_the_token_ratio_off_policy(pair, estimator):
    """... and off-policy: the next-token KLs of the new policy on the old policy's prefixes, value and gradient."""
    theta, ref = pair
    old = TREE.random_logits(2)
    value, gradient = kl_loss(pair, estimator, weighted=True, level="token", behaviour=old)
    on_old_prefixes = (TREE.visits(old) * TREE.token_kl(theta, ref)).sum()
    close(value, on_old_prefixes.detach())
    close(gradient, TREE.grad(on_old_prefixes, theta))
    unweighted, _ = kl_loss(pair, estimator, level="token", behaviour=old)
    differ(unweighted, value, by=1e-2)


@pytest.mark.parametrize("estimator", ["k1", "k3"])
@pytest.mark.parametrize("stale", [False, True])
def test_kl_weighted_by_the_response_ratio(pair, estimator, stale):
    """Response level, weighted by the product of ratios: the exact KL and its exact gradient, on- and off-policy."""
    theta, ref = pair
    old = TREE.random_logits(2) if stale else theta
    value, gradient = kl_loss(pair, estimator, weighted=True, level="sequence", behaviour=old)
    close(value, TREE.kl(theta, ref).detach())
    close(gradient, TREE.grad(TREE.kl(theta, ref), theta))


def test_k1_in_the_reward_is_exact(pair):
    """k1 in the reward, undifferentiated: the expected gradient is that of E[R] - beta KL(pi || ref)."""
    theta, ref = pair
    R, beta = rewards_of(), 0.3
    _, gradient = expected(plain(kl=(KL(beta, "k1", place="reward"),)), theta, 1, rewards=R, ref=ref)
    close(gradient, -TREE.grad(TREE.expect(theta, R) - beta * TREE.kl(theta, ref), theta))


@pytest.mark.parametrize("estimator", ["k2", "k3"])
def test_k2_and_k3_in_the_reward_are_not(pair, estimator):
    """Their values are penalties whose own derivative is missing: not the gradient of the KL."""
    theta, ref = pair
    _, gradient = expected(plain(kl=(KL(1.0, estimator, place="reward"),)), theta, 1, ref=ref)
    differ(gradient, TREE.grad(TREE.kl(theta, ref), theta), by=1e-2)


def test_swapping_the_arguments_estimates_chi_square(pair):
    """k3 with pi and ref swapped, on samples of pi, is chi2(pi || ref) - KL(pi || ref); its gradient grad chi2 / 2."""
    theta, ref = pair
    logp, ref_logp = TREE.sequence_logp(theta), TREE.sequence_logp(ref)
    swapped = kl.k3(ref_logp, logp)
    close(TREE.expect(theta, swapped.detach()), TREE.chi2(theta, ref) - TREE.kl(theta, ref))
    in_loss = TREE.grad((TREE.probs(theta).detach() * swapped).sum(), theta)
    close(in_loss, TREE.grad(TREE.chi2(theta, ref), theta) / 2)
    close(TREE.expect(theta, kl.k1(ref_logp, logp)), -TREE.kl(theta, ref))


@pytest.mark.parametrize("estimator", ["k2", "k3"])
def test_kl_against_the_old_policy(pair, estimator):
    """Against old instead of the reference: nothing at pi = old; off-policy, the sampled estimator's own gradient."""
    theta, _ = pair
    on_policy = kl_loss(pair, estimator, against="old", level="sequence")
    close(on_policy[0], torch.zeros(()).double())
    close(on_policy[1], torch.zeros_like(theta))

    old = TREE.random_logits(2)
    value, gradient = kl_loss(pair, estimator, against="old", level="sequence", behaviour=old)
    L = TREE.sequence_logp(theta) - TREE.sequence_logp(old)
    by_hand = (TREE.probs(old) * (L**2 / 2 if estimator == "k2" else (-L).exp() - 1 + L)).sum()
    close(value, by_hand.detach())
    close(gradient, TREE.grad(by_hand, theta))


def test_k3_varies_less_near_the_reference_and_more_far_from_it():
    """Exact variances on whole responses: k3's is far below k1's for close policies, and above it for distant ones."""
    ref = TREE.random_logits(1)

    def variance(theta, estimator):
        x = estimator(TREE.sequence_logp(theta), TREE.sequence_logp(ref))
        return (TREE.expect(theta, x**2) - TREE.expect(theta, x) ** 2).item()

    near, far = ref + 0.05 * TREE.random_logits(2), ref + 3.0 * TREE.random_logits(2)
    assert variance(near, kl.k3) < 0.01 * variance(near, kl.k1)
    assert variance(far, kl.k3) > 2 * variance(far, kl.k1)


def test_k3_needs_the_whole_support(pair):
    """On nucleus samples k3 loses the reference's mass outside the nucleus, exactly; k1 does not."""
    theta, ref = pair
    nucleus = TREE.top_p(theta.detach(), 0.6)
    p = TREE.probs(nucleus)
    sampled = p > 0
    assert sampled.sum() < len(TREE)
    logq, ref_logp = TREE.sequence_logp(nucleus)[sampled], TREE.sequence_logp(ref)[sampled]
    exact = (p[sampled] * (logq - ref_logp)).sum()  # KL(nucleus || ref)
    missing = 1 - ref_logp.exp().sum()
    close((p[sampled] * kl.k1(logq, ref_logp)).sum(), exact)
    close((p[sampled] * kl.k3(logq, ref_logp)).sum(), exact - missing)
    assert missing > 0.1
