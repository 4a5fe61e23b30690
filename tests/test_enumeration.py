"""Claims about expectations, each held to its exact value: a tiny policy's responses are all listed, none is sampled.

Float64, 1e-9. Most claims come with a neighbour that is false, so that the oracle is seen to reject something.
"""

import itertools
import math
from dataclasses import replace
from functools import partial

import pytest
import torch

from rlhf_book.tabular import Tree
from rlhf_minimal import ALGORITHMS, KL, Algorithm, Batch, contrib, policy_loss
from rlhf_minimal.functional import (
    advantages,
    aggregation,
    corrections,
    filters,
    gates,
    kl,
    logprobs,
    ratios,
    shaping,
)

TREE = Tree(vocab=3, length=3)  # 15 responses of 1 to 3 tokens
SMALL = Tree(vocab=3, length=2)  # 7 responses, for groups of three and more
ESTIMATORS = {"k1": kl.k1, "k2": kl.k2, "k3": kl.k3}


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


def differ(actual, expected, by=1e-3):
    assert (actual - expected).abs().max() > by


def cosine(a, b):
    return (torch.dot(a.flatten(), b.flatten()) / (a.norm() * b.norm())).item()


def policy(tree=TREE, seed=0, scale=1.0):
    return tree.random_logits(seed, scale).requires_grad_()


def rewards_of(tree=TREE, seed=7):
    return torch.randn(len(tree), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def binary_of(tree=TREE):
    """Right: the responses that begin with "a"."""
    return (tree.tokens[:, 0] == 1).double()


def expected(algorithm, theta, G, tree=TREE, *, old=None, behaviour=None, ref=None, budget=None, **tables):
    """Exact expected loss and expected gradient of `algorithm`, from groups sampled by `old` (default: theta itself).

    Keyword tables have one row a response: rewards [N], values [N, T], advantages [N] or [N, T], ...
    """
    old = theta if old is None else old
    tables = {"rewards": torch.zeros(len(tree), dtype=torch.float64), **tables}
    tables |= {"old_logp": tree.logp(old).detach(), "mask": tree.mask}
    if ref is not None:
        tables["ref_logp"] = tree.logp(ref).detach()

    def loss(logp, rows):
        cells = {name: table[rows] for name, table in tables.items()}
        return policy_loss(algorithm, Batch(logp=logp, group_size=G, budget=budget, **cells))

    return tree.expected_loss(loss, theta, G, behaviour=old if behaviour is None else behaviour)


def plain(**cells) -> Algorithm:
    """REINFORCE's row with other cells: sum over tokens, mean over responses, nothing else."""
    return replace(ALGORITHMS["reinforce"], **cells)


def unclipped(name, **cells) -> Algorithm:
    return replace(ALGORITHMS[name], **{"gate": gates.none, "kl": (), "shape": None, "normalize": None, **cells})


# ── the oracle itself, against something that is not it ──────────────────────────────────────────────────────


def test_oracle_lists_every_response_once():
    """All words without EOS inside, ended by EOS or by the length limit: checked against all strings of tokens."""
    strings = set()
    for s in itertools.product(range(3), repeat=3):
        strings.add(s[: s.index(0) + 1] if 0 in s else s)
    assert set(TREE.sequences) == strings
    assert len(TREE) == len(strings) == 15


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_oracle_probabilities_sum_to_one(temperature):
    theta = TREE.random_logits(3)
    close(TREE.probs(theta, temperature).sum(), torch.tensor(1.0, dtype=torch.float64))
    close(TREE.probs(TREE.top_p(theta, 0.6)).sum(), torch.tensor(1.0, dtype=torch.float64))
    for G in (1, 2, 3):
        close(TREE.group_probs(theta, G, temperature).sum(), torch.tensor(1.0, dtype=torch.float64))


def test_oracle_groups_are_the_ordered_tuples_counted():
    """E[max of 3] over multisets = over all 343 ordered triples."""
    theta, R = SMALL.random_logits(0), rewards_of(SMALL)
    p = SMALL.probs(theta)
    ordered = sum(
        p[i] * p[j] * p[k] * max(R[i], R[j], R[k]) for i, j, k in itertools.product(range(len(SMALL)), repeat=3)
    )
    rows, _ = SMALL.groups(3)
    close((SMALL.group_probs(theta, 3) * R[rows].max(1).values).sum(), ordered)


def test_oracle_gradient_is_the_finite_difference():
    theta, R, h = policy(), rewards_of(), 1e-5
    numeric = torch.zeros_like(theta)
    with torch.no_grad():
        for s, v in itertools.product(range(len(TREE.prefixes)), range(TREE.vocab)):
            bump = torch.zeros_like(theta)
            bump[s, v] = h
            numeric[s, v] = (TREE.expect(theta + bump, R) - TREE.expect(theta - bump, R)) / (2 * h)
    torch.testing.assert_close(TREE.policy_gradient(theta, R), numeric, rtol=1e-6, atol=1e-9)


def test_oracle_values_satisfy_bellman():
    """V(s) = sum_a pi(a|s) (r + V(s')), and V(start) = E[R]."""
    theta, R = TREE.random_logits(0), rewards_of()
    V = TREE.values(theta, TREE.outcome(R))
    close(V[:, 0], TREE.expect(theta, R).expand(len(TREE)))
    table, of = theta.softmax(-1), {s: n for n, s in enumerate(TREE.sequences)}
    for n, sequence in enumerate(TREE.sequences):
        for t in range(len(sequence)):
            total = 0.0
            for a in range(TREE.vocab):
                prefix = (*sequence[:t], a)
                if prefix in of:
                    total += table[TREE.node[n, t], a] * R[of[prefix]]
                else:
                    later = next(m for m, s in enumerate(TREE.sequences) if s[: t + 1] == prefix)
                    total += table[TREE.node[n, t], a] * V[later, t + 1]
            close(V[n, t], total)


def test_oracle_kl_obeys_the_chain_rule():
    """KL over responses = sum over prefixes of P(prefix) KL of the next token."""
    theta, ref = TREE.random_logits(0), TREE.random_logits(1)
    close(TREE.kl(theta, ref), (TREE.visits(theta) * TREE.token_kl(theta, ref)).sum())


def test_oracle_tilted_policy_is_the_regularised_optimum():
    """grad( E[R] - tau KL(pi || ref) ) = 0 at pi = ref exp(R/tau) / Z, where the objective equals tau log Z."""
    ref, R, tau = TREE.random_logits(1), rewards_of(), 0.3
    best, log_Z = TREE.tilted(ref, R / tau)
    best.requires_grad_()
    objective = TREE.expect(best, R) - tau * TREE.kl(best, ref)
    close(TREE.grad(objective, best), torch.zeros_like(best))
    close(objective, tau * log_Z)


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


# ── what dividing by |o| and by the group's std does ─────────────────────────────────────────────────────────


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


# ── KL ───────────────────────────────────────────────────────────────────────────────────────────────────────


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
