"""Exact expectations: what dividing by |o| and by the group's standard deviation does."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch

from rlhf_book.tabular import Tree
from rlhf_minimal import ALGORITHMS, Batch, contrib, policy_loss
from rlhf_minimal.functional import advantages, aggregation, filters, shaping
from tests.enumeration.exact import (
    SMALL,
    TREE,
    binary_of,
    close,
    cosine,
    differ,
    expected,
    plain,
    policy,
    rewards_of,
    unclipped,
)


def test_the_length_average_optimises_reward_over_length():
    """With a raw reward as advantage, 1/|o| turns grad E[R] into grad E[R/|o|]."""
    theta, R = policy(), rewards_of()
    _, gradient = expected(plain(aggregate=aggregation.sequence_mean), theta, 1, rewards=R)
    close(gradient, -TREE.policy_gradient(theta, R / TREE.lengths))
    assert abs(cosine(gradient, TREE.policy_gradient(theta, R))) < 0.999


def test_under_the_length_average_a_baseline_is_not_free():
    """A baseline b then pushes the length itself: the bias is exactly b grad E[1/|o|]."""
    theta, R, b = policy(), rewards_of(), 2.0
    algorithm = plain(advantage=contrib.advantages.given_baseline, aggregate=aggregation.sequence_mean)
    _, gradient = expected(algorithm, theta, 1, rewards=R, baseline=torch.full_like(R, b))
    close(gradient, -TREE.policy_gradient(theta, (R - b) / TREE.lengths))
    differ(gradient, -TREE.policy_gradient(theta, R / TREE.lengths))


def test_a_constant_length_and_a_sum_have_no_length_bias():
    """fixed_length is the policy gradient over the budget; token_mean is not proportional to it (|o| is random)."""
    tree = SMALL
    theta, R = policy(tree), rewards_of(tree)
    exact = tree.policy_gradient(theta, R)
    _, fixed = expected(plain(aggregate=aggregation.fixed_length), theta, 2, tree, rewards=R, budget=5)
    close(fixed, -exact / 5)
    _, token = expected(plain(aggregate=aggregation.token_mean), theta, 2, tree, rewards=R)
    assert 0.9 < cosine(-token, exact) < 1 - 1e-4


@pytest.mark.parametrize("G", [2, 3, 5, 8])
@pytest.mark.parametrize("seed", [0, 1])
def test_z_score_reweights_a_prompt_by_the_finite_group_formula(G, seed):
    """Binary rewards, k ~ Binomial(G, p) right: the gradient is E[sqrt(k(G-k))]/(G p(1-p)) grad p.

    The sample std brings the factor sqrt((G-1)/G). The weight is at most sqrt(G-1), and equal to it for
    G = 2, 3. The direction is grad p: a group's std cannot turn a binary reward, only weigh its prompt.
    """
    tree = Tree(vocab=2, length=2)  # 3 responses: ".", "a.", "aa"
    theta, R = policy(tree, seed), binary_of(tree)
    p = tree.expect(theta, R).item()
    spread = sum(math.comb(G, k) * p**k * (1 - p) ** (G - k) * math.sqrt(k * (G - k)) for k in range(G + 1))
    for ddof, scale in ((0, 1.0), (1, math.sqrt((G - 1) / G))):
        algorithm = plain(advantage=partial(advantages.group_normalized, eps=1e-300, ddof=ddof))
        _, gradient = expected(algorithm, theta, G, tree, rewards=R)
        close(gradient, -scale * spread / (G * p * (1 - p)) * tree.policy_gradient(theta, R))
    assert spread / (G * p * (1 - p)) <= math.sqrt(G - 1) + 1e-12
    if G <= 3:
        close(torch.tensor(spread / (G * p * (1 - p))), torch.tensor(math.sqrt(G - 1)))


def test_z_score_with_the_rows_own_epsilon():
    """The same with the row's eps 1e-4: E[k(G-k)/(G^2 (s_k + eps))]/(p(1-p)), s_k the sample std of k right of G."""
    tree, G = SMALL, 4
    theta, R = policy(tree), binary_of(tree)
    p, weight = tree.expect(theta, R).item(), 0.0
    for k in range(1, G):
        s = math.sqrt(k * (G - k) / (G * (G - 1)))
        weight += math.comb(G, k) * p**k * (1 - p) ** (G - k) * k * (G - k) / (G**2 * (s + 1e-4))
    algorithm = unclipped("grpo", aggregate=aggregation.sequence_sum)
    _, gradient = expected(algorithm, theta, G, tree, rewards=R)
    close(gradient, -weight / (p * (1 - p)) * tree.policy_gradient(theta, R))


def test_z_score_turns_the_gradient_when_rewards_have_three_levels():
    """Three reward levels, one prompt: GRPO's z-score is not parallel to grad J; the centred advantage is."""
    tree = SMALL
    theta = policy(tree)
    R = torch.tensor([0.0, 1.0, 5.0, 0.0, 1.0, 0.0, 1.0], dtype=torch.float64)
    exact = tree.policy_gradient(theta, R)
    _, z = expected(plain(advantage=advantages.group_normalized), theta, 3, tree, rewards=R)
    _, centred = expected(plain(advantage=advantages.group_centered), theta, 3, tree, rewards=R)
    assert cosine(-z, exact) < 0.99
    close(centred, -2 / 3 * exact)


def test_z_score_weighs_prompts_against_each_other():
    """Two prompts, p = .5 and p small, G = 4: relative to Dr. GRPO the z-score favours the hard one, by the formula."""
    tree, G = Tree(vocab=2, length=1), 4
    boost = {}
    for name, logit in (("even", 0.0), ("hard", -3.0)):
        theta = torch.tensor([[0.0, logit]], dtype=torch.float64).requires_grad_()
        R = binary_of(tree)
        _, z = expected(plain(advantage=partial(advantages.group_normalized, eps=1e-300)), theta, G, tree, rewards=R)
        _, centred = expected(plain(advantage=advantages.group_centered), theta, G, tree, rewards=R)
        boost[name] = (z / centred)[0, 1].item()
    assert boost["hard"] > 1.05 * boost["even"]
    assert boost["hard"] / boost["even"] < 1.5  # nowhere near sqrt(.25 / p(1-p)) = 2.35: most groups are dead


def test_a_pair_sees_only_who_won():
    """G = 2: the z-score is the sign of the difference, so any increasing map of rewards is the same."""
    theta, R = policy(SMALL), rewards_of(SMALL)
    algorithm = plain(advantage=partial(advantages.group_normalized, eps=1e-300))
    _, one = expected(algorithm, theta, 2, SMALL, rewards=R)
    _, two = expected(algorithm, theta, 2, SMALL, rewards=(3 * R).exp())
    _, three = expected(algorithm, theta, 3, SMALL, rewards=R)
    _, four = expected(algorithm, theta, 3, SMALL, rewards=(3 * R).exp())
    close(one, two)
    differ(three, four)


@pytest.mark.parametrize("G", [2, 4, 8])
def test_dead_groups(G):
    """The share of groups without signal is p^G + (1-p)^G, counted by dynamic sampling's own filter."""
    tree = Tree(vocab=2, length=2)
    theta, R = tree.random_logits(2), binary_of(tree)
    rows, _ = tree.groups(G)
    kept = torch.stack([filters.mixed_outcomes(R[group], group_size=G).all() for group in rows])
    p = tree.expect(theta, R)
    close((tree.group_probs(theta, G) * ~kept).sum(), p**G + (1 - p) ** G)


@pytest.mark.parametrize("G", [2, 3])
def test_a_baseline_from_elsewhere_gives_all_wrong_groups_the_usual_direction(G):
    """All-wrong groups, rewards 0, baseline b from other prompts: on average they give b (1-p)^(G-1) grad p.

    So at p > 0 it is the direction that mixed groups give; at p = 0 its mean is zero and only noise is left.
    """
    theta, R, b = policy(SMALL), binary_of(SMALL), 0.4
    rows, _ = SMALL.groups(G)
    all_wrong = (R[rows] == 0).all(1)
    algorithm = plain(advantage=contrib.advantages.given_baseline)

    def from_groups(chosen, rewards):
        total, p = torch.zeros_like(theta), SMALL.group_probs(theta, G).detach()
        for group, weight in zip(rows[chosen], p[chosen], strict=True):
            logp = SMALL.logp(theta)[group]
            baseline = torch.full((G,), b, dtype=torch.float64)
            batch = Batch(logp, logp.detach(), SMALL.mask[group], rewards[group], G, baseline=baseline)
            total += weight * SMALL.grad(policy_loss(algorithm, batch), theta)
        return total

    p = SMALL.expect(theta, R).item()
    close(from_groups(all_wrong, R), -b * (1 - p) ** (G - 1) * SMALL.policy_gradient(theta, R))
    hopeless = torch.zeros_like(R)
    everything = torch.ones(len(rows), dtype=torch.bool)
    close(from_groups(everything, hopeless), torch.zeros_like(theta))


def test_dynamic_sampling_scales_and_does_not_turn():
    """Without KL a dead group has no gradient, so refilling divides the expectation by the share of live groups."""
    tree, G = SMALL, 3
    theta, R = policy(tree), binary_of(tree)
    algorithm = unclipped("grpo")
    _, everything = expected(algorithm, theta, G, tree, rewards=R)
    rows, _ = tree.groups(G)
    p = tree.group_probs(theta, G).detach()
    live = torch.stack([filters.mixed_outcomes(R[group], group_size=G).all() for group in rows])
    kept_gradient, with_kl = torch.zeros_like(theta), torch.zeros_like(theta)
    ref = tree.logp(tree.random_logits(9))
    for group, weight in zip(rows[live], p[live] / p[live].sum(), strict=True):
        logp = tree.logp(theta)
        batch = {"old_logp": logp[group].detach(), "mask": tree.mask[group], "rewards": R[group], "group_size": G}
        kept_gradient += weight * tree.grad(policy_loss(algorithm, Batch(logp[group], **batch)), theta)
        anchored = replace(algorithm, kl=ALGORITHMS["grpo"].kl)
        loss = policy_loss(anchored, Batch(logp[group], **batch, ref_logp=ref[group]))
        with_kl += weight * tree.grad(loss, theta)
    close(kept_gradient * p[live].sum(), everything)
    # ... which fails as soon as a KL acts in the loss: a dead group is then not a group without gradient.
    _, everything_with_kl = expected(anchored, theta, G, tree, rewards=R, ref=tree.random_logits(9))
    assert (with_kl * p[live].sum() - everything_with_kl).abs().max() > 1e-4


def test_dynamic_sampling_turns_where_the_reward_is_shaped():
    """The filter reads raw rewards and the advantage shaped ones: equal answers of different length are dropped, and
    they had a gradient. So "scales and does not turn" does not hold for the row `dapo` as it stands."""
    tree, G, budget = SMALL, 3, 2
    theta, R = policy(tree), binary_of(tree)
    rows, _ = tree.groups(G)
    chances = tree.group_probs(theta, G).detach()
    found = {}
    for shape in (None, shaping.soft_overlong):
        algorithm = unclipped("dapo", aggregate=aggregation.sequence_mean, shape=shape)
        everything, kept, dropped = (torch.zeros_like(theta) for _ in range(3))
        for group, chance in zip(rows, chances, strict=True):
            logp = tree.logp(theta)[group]
            batch = Batch(logp, logp.detach(), tree.mask[group], R[group], G, budget=budget)
            gradient = chance * tree.grad(policy_loss(algorithm, batch), theta)
            everything += gradient
            if filters.mixed_outcomes(R[group], group_size=G).all():
                kept += gradient
            else:
                dropped += gradient
        found[shape] = cosine(kept, everything), dropped.norm().item()
    assert found[None][0] == pytest.approx(1, abs=1e-9)
    assert found[None][1] == pytest.approx(0, abs=1e-9)
    assert found[shaping.soft_overlong][0] < 0.9
    assert found[shaping.soft_overlong][1] > 0.01
