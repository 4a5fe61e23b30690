"""Exact expectations: ratios and gates off-policy, and Kimi K2's loss."""

import itertools
from dataclasses import replace

import pytest
import torch

from rlhf_book.tabular import Tree
from rlhf_minimal import ALGORITHMS, contrib
from rlhf_minimal.functional import advantages, aggregation, ratios
from tests.enumeration.exact import SMALL, TREE, close, cosine, differ, expected, plain, policy, rewards_of

# ── ratios ───────────────────────────────────────────────────────────────────────────────────────────────────


def off_policy(ratio, R, theta, old, aggregate=aggregation.sequence_mean, tree=TREE):
    return expected(plain(ratio=ratio, aggregate=aggregate), theta, 1, tree, old=old, advantages=R)


def test_only_the_product_of_ratios_corrects_a_response():
    """E_old[S R] = E_new[R], with its gradient, for S the product; not for the geometric mean, not for token ratios."""
    theta, old, R = policy(), TREE.random_logits(2), rewards_of()
    exact, exact_gradient = -TREE.expect(theta, R).detach(), -TREE.policy_gradient(theta, R)
    value, gradient = off_policy(contrib.ratios.sequence_product, R, theta, old)
    close(value, exact)
    close(gradient, exact_gradient)
    for ratio in (ratios.sequence, ratios.sequence_token, ratios.token):
        value, gradient = off_policy(ratio, R, theta, old)
        differ(value, exact, by=1e-2)
        assert cosine(gradient, exact_gradient) < 0.99


def test_one_token_is_corrected_by_its_ratio():
    """A single action in a fixed state: E_old[r A] = E_new[A]. Here all ratios are one and the same thing."""
    tree = Tree(vocab=4, length=1)
    theta, old, R = policy(tree), tree.random_logits(2), rewards_of(tree)
    for ratio in (ratios.token, ratios.sequence, contrib.ratios.sequence_product):
        value, gradient = off_policy(ratio, R, theta, old, tree=tree)
        close(value, -tree.expect(theta, R).detach())
        close(gradient, -tree.policy_gradient(theta, R))


def test_the_token_surrogate_is_right_to_first_order():
    """sum_t (r_t - 1) A, a sum over tokens, gives J(new) - J(old) up to an error of second order in the step."""
    old, R = TREE.random_logits(2), rewards_of()
    direction = TREE.random_logits(11)
    errors = []
    for step in (2e-2, 1e-2, 5e-3):
        theta = (old + step * direction).requires_grad_()
        value, _ = off_policy(ratios.token, R, theta, old, aggregation.sequence_sum)
        at_old, _ = off_policy(ratios.token, R, old.clone().requires_grad_(), old, aggregation.sequence_sum)
        change = (TREE.expect(theta, R) - TREE.expect(old, R)).detach()
        errors.append((-(value - at_old) - change).abs().item())
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.1)
    assert errors[1] / errors[2] == pytest.approx(4, rel=0.1)


def test_the_price_of_the_exact_ratio():
    """Var_old[product of ratios] = chi2(new || old), exactly; the geometric mean's is far less."""
    old = TREE.random_logits(2)
    spreads = []
    for step in (0.1, 0.3, 1.0):
        theta = old + step * TREE.random_logits(11)
        weights = {
            r: r(TREE.logp(theta), TREE.logp(old), TREE.mask)[:, 0]
            for r in (contrib.ratios.sequence_product, ratios.sequence)
        }
        product, geometric = weights.values()
        variance = TREE.expect(old, product**2) - 1
        close(TREE.expect(old, product), torch.ones(()).double())
        close(variance, TREE.chi2(theta, old))
        spreads.append(variance.item())
        assert TREE.expect(old, geometric**2) - TREE.expect(old, geometric) ** 2 < variance / 2
    assert spreads == sorted(spreads)


@pytest.mark.parametrize("name", ["reinforce", "grpo", "dapo", "gspo", "gmpo", "cispo", "sapo"])
def test_at_ratio_one_every_ratio_and_gate_is_the_same_gradient(name):
    """On-policy, rows with the same advantage and aggregation have one expected gradient: gates only act off-policy."""
    theta, R = policy(SMALL), rewards_of(SMALL)
    row = ALGORITHMS[name]
    aggregate = aggregation.geometric_mean if name == "gmpo" else aggregation.sequence_mean
    row = replace(row, advantage=advantages.group_centered, aggregate=aggregate, kl=(), shape=None)
    plain_row = plain(advantage=advantages.group_centered, aggregate=aggregation.sequence_mean)
    _, gradient = expected(row, theta, 3, SMALL, rewards=R)
    _, same = expected(plain_row, theta, 3, SMALL, rewards=R)
    close(gradient, same)


def test_off_policy_the_gates_part():
    """The control of the test above: off-policy these rows have different expected gradients."""
    theta, R = policy(), rewards_of()
    old = theta.detach() + 0.3 * TREE.random_logits(2)
    names = ["reinforce", "grpo", "dapo", "gspo", "cispo", "sapo"]
    gradients = []
    for name in names:
        row = replace(
            ALGORITHMS[name],
            advantage=advantages.group_centered,
            aggregate=aggregation.sequence_mean,
            kl=(),
            shape=None,
        )
        gradients.append(expected(row, theta, 2, old=old, rewards=R)[1])
    for a, b in itertools.combinations(gradients, 2):
        differ(a, b, by=1e-4)


def test_gspo_token_is_gspo():
    """Equal advantages within a response: same expected value, same expected gradient, on- and off-policy."""
    R = rewards_of(SMALL)
    for old in (SMALL.random_logits(0), SMALL.random_logits(0) + 1e-4 * SMALL.random_logits(3), SMALL.random_logits(2)):
        theta = policy(SMALL)
        one = expected(ALGORITHMS["gspo"], theta, 3, SMALL, old=old, rewards=R)
        two = expected(ALGORITHMS["gspo_token"], theta, 3, SMALL, old=old, rewards=R)
        close(one[0], two[0])
        close(one[1], two[1])


def test_gspo_token_lets_advantages_differ_by_token():
    """With token-wise advantages the two part: GSPO's ratio sends each token's advantage through all tokens."""
    theta = policy()
    A = torch.randn(len(TREE), 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    one, two = (expected(plain(ratio=r, aggregate=aggregation.sequence_mean), theta, 1, advantages=A)[1]
                for r in (ratios.sequence, ratios.sequence_token))  # fmt: skip
    mean_A = (A * TREE.mask).sum(1) / TREE.lengths
    close(one, expected(plain(aggregate=aggregation.sequence_mean), theta, 1, advantages=mean_A)[1])
    differ(one, two)


# ── Kimi K2 ──────────────────────────────────────────────────────────────────────────────────────────────────


def with_tau(tau):
    """Kimi K2's row at another temperature."""
    (term,) = ALGORITHMS["kimi_k2"].kl
    return replace(ALGORITHMS["kimi_k2"], kl=(replace(term, coef=tau),))


def test_kimi_k2_starts_as_the_centred_policy_gradient():
    """At pi = pi_old its expected gradient is -(G-1)/G grad J, whatever tau is."""
    theta, R = policy(SMALL), rewards_of(SMALL)
    for tau in (0.1, 3.0):
        _, gradient = expected(with_tau(tau), theta, 3, SMALL, rewards=R)
        close(gradient, -2 / 3 * SMALL.policy_gradient(theta, R))


def test_kimi_k2_is_the_squared_loss():
    """Off-policy: the gradient of E_old[(r - mean r - tau log ratio)^2] / (2 tau), group by group."""
    tau, G = 0.7, 3
    theta, old, R = policy(SMALL), SMALL.random_logits(2), rewards_of(SMALL)
    rows, _ = SMALL.groups(G)
    L = (SMALL.sequence_logp(theta) - SMALL.sequence_logp(old))[rows]
    residual = R[rows] - R[rows].mean(1, keepdim=True) - tau * L
    squared = (SMALL.group_probs(old, G) * residual.square().mean(1)).sum() / (2 * tau)
    _, gradient = expected(with_tau(tau), theta, G, SMALL, old=old, rewards=R)
    close(gradient, SMALL.grad(squared, theta))


def test_kimi_k2_would_stop_at_the_optimum_with_the_right_baseline():
    """r - tau log Z in the place of r - mean r: the gradient vanishes at old exp(r/tau)/Z, the KL-regularised optimum.

    With the group's mean it does not: mean r is not tau log Z.
    """
    tau, G = 0.5, 3
    old, R = SMALL.random_logits(2), rewards_of(SMALL)
    best, log_Z = SMALL.tilted(old, R / tau)
    best.requires_grad_()
    row = with_tau(tau)
    _, gradient = expected(row, best, G, SMALL, old=old, advantages=R - tau * log_Z)
    close(gradient, torch.zeros_like(best))
    _, gradient = expected(row, best, G, SMALL, old=old, rewards=R)
    assert gradient.norm() > 1e-2


def test_kimi_k2_misses_the_optimum_less_and_less_as_tau_grows():
    """The finite group replaces r by (G-1)/G r. At old exp((G-1)/G r / tau)/Z the gradient falls as 1/tau^2."""
    G = 2
    old, R = SMALL.random_logits(2), rewards_of(SMALL)
    norms = []
    for tau in (10.0, 100.0, 1000.0):
        best, _ = SMALL.tilted(old, (G - 1) / G * R / tau)
        _, gradient = expected(with_tau(tau), best.requires_grad_(), G, SMALL, old=old, rewards=R)
        norms.append(gradient.norm().item())
    assert norms[0] / norms[1] == pytest.approx(100, rel=0.1)
    assert norms[1] / norms[2] == pytest.approx(100, rel=0.05)
