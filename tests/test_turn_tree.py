"""The tree of two turns: probabilities, gradients against autograd and sampling, and what the chapter says of it."""

import pytest
import torch

from rlhf_book.turn_tree import LIES, Tree, compare, compare_groups, who_gets_credit, who_is_trained


@pytest.mark.parametrize("shared", [False, True])
def test_the_tree_holds_every_transcript_once(shared):
    tree = Tree(shared=shared)
    assert len(tree.texts) == 55
    for seed in range(3):
        assert float(tree.probabilities(tree.policy(seed)).sum()) == pytest.approx(1.0)
    assert tree.own.sum(1).tolist() == [2.0] * 55
    assert tree.features.shape == ((tree.features.shape[0], 6) if shared else (tree.features.shape[0],) * 2)


def test_the_reward_of_a_policy_that_asks_and_believes():
    tree = Tree()
    for tool in "sl":
        theta = torch.zeros_like(tree.policy(0))
        prefixes = sorted({text[:t] for text in tree.texts for t in range(len(text))})
        theta[prefixes.index(""), "slhtz".index(tool)] = 50.0
        for i, prefix in enumerate(prefixes):
            if prefix and prefix[0] in "sl" and len(prefix) == (2 if prefix[0] == "s" else 5):
                theta[i, "slhtz".index(prefix[1])] = 50.0
        assert float(tree.probabilities(theta) @ tree.total) == pytest.approx(1 - LIES[tool])


@pytest.mark.parametrize("shared", [False, True])
def test_scores_are_those_of_autograd_and_own_tokens_give_the_true_gradient(shared):
    tree = Tree(shared=shared, step=0.3)
    theta = tree.policy(4)
    leaf = theta.clone().requires_grad_()
    logp = (tree.features @ leaf).log_softmax(-1)[tree._node, tree._token]
    for n, t in ((0, 0), (12, 1), (37, 5), (50, 1)):
        if tree.read[n, t]:
            (want,) = torch.autograd.grad(logp[n, t], leaf, retain_graph=True)
            torch.testing.assert_close(tree.scores(theta)[n, t], want)
    mean, _ = tree.estimate(theta, tree.total[:, None] * tree.own)
    torch.testing.assert_close(mean, tree.true_gradient(theta))


def test_mean_and_variance_are_those_of_samples():
    tree, draws = Tree(), torch.Generator().manual_seed(0)
    theta = tree.policy(1)
    weight = tree.total[:, None] * tree.read
    mean, variance = tree.estimate(theta, weight)
    rows = torch.multinomial(tree.probabilities(theta), 40000, replacement=True, generator=draws)
    each = torch.einsum("nt,ntkv->nkv", weight, tree.scores(theta))[rows]
    torch.testing.assert_close(each.mean(0), mean, atol=0.02, rtol=0)
    assert float(each.var(0).sum()) == pytest.approx(variance, rel=0.03)


def test_what_the_chapter_says_of_masks_and_divisors():
    table, shared = compare(Tree(), who_is_trained), compare(Tree(shared=True), who_is_trained)
    for one in (table, shared):
        for name in ("own tokens", "mean over own tokens", "one divisor for the batch"):
            assert one[name]["least"] == pytest.approx(1.0)
        assert one["own tokens"]["length"] == pytest.approx(1.0)
        assert one["replies in the loss"]["variance"] > 2 * one["own tokens"]["variance"]
        assert 0.9 < one["divided by own and replies"]["cosine"] < 0.99
    assert table["replies in the loss"]["cosine"] == pytest.approx(0.798, abs=5e-4)
    assert shared["replies in the loss"]["cosine"] == pytest.approx(0.603, abs=5e-4)
    assert shared["replies in the loss"]["least"] < 0.05
    assert table["divided by own and replies"]["cosine"] == pytest.approx(0.974, abs=5e-4)


def test_what_the_chapter_says_of_credit():
    for step in (0.0, 0.3):
        credit = compare(Tree(step=step), who_gets_credit)
        exact = ("one number a transcript", "to go, less its mean at that turn", "to go, less V(state)")
        assert all(credit[name]["least"] == pytest.approx(1.0) for name in exact)
        spread = [credit[name]["variance"] for name in exact]
        assert spread[0] >= spread[1] - 1e-9 > spread[2]
    plain = compare(Tree(), who_gets_credit)
    assert plain["returns reset at the reply"]["cosine"] == pytest.approx(0.516, abs=5e-4)
    assert plain["discount by tokens, replies too"]["cosine"] == pytest.approx(0.928, abs=5e-4)
    assert plain["discount by turns"]["cosine"] == pytest.approx(0.995, abs=5e-4)


def test_what_the_depth_says_of_equal_states():
    tree = Tree(step=0.3, talk=False)
    assert len(tree.texts) == 40
    table = compare_groups(tree)
    for name in ("rows, leave one out", "turns, leave one out", "equal states, leave one out, if alone by turn"):
        assert table[name]["least"] == pytest.approx(1.0)
        assert table[name]["length"] == pytest.approx(1.0)
    assert table["rows, less the group's mean"]["length"] == pytest.approx(2 / 3)
    biased = [
        table[name] for name in table if name.startswith(("equal states, less", "equal states, leave one out, 0", "z-"))
    ]
    assert len(biased) == 3
    assert all(0.9 < one["cosine"] < 0.97 for one in biased)
    exact = table["equal states, leave one out, if alone by turn"]
    assert exact["variance"] < table["turns, leave one out"]["variance"] < table["rows, leave one out"]["variance"]


def test_groups_have_the_mean_and_variance_of_samples():
    """Every ordered group once, in loops."""
    tree = Tree(step=0.3, talk=False)
    theta, mean = tree.policy(0), 0.0
    p, scores = tree.probabilities(theta), tree.scores(theta)
    per_row = torch.einsum("nt,ntkv->nkv", tree.own, scores)
    for i in range(40):
        for j in range(40):
            others = (tree.total[j] + tree.total) / 2  # of all third members
            mean = mean + p[i] * p[j] * (p @ (tree.total[i] - others)) * per_row[i]
    torch.testing.assert_close(mean, tree.true_gradient(theta))


def test_a_divisor_that_counts_replies_bends_for_and_against_the_tool_that_talks():
    """How much of a step of length 1 goes into the chance of the long tool: less for some policies, more for others."""
    tree = Tree()
    talks = torch.tensor([float(text[0] == "l") for text in tree.texts], dtype=torch.float64)
    more = []
    for seed in range(20):
        theta = tree.policy(seed)
        leaf = theta.clone().requires_grad_()
        (of_talking,) = torch.autograd.grad(tree.probabilities(leaf) @ talks, leaf)
        weights = who_is_trained(tree, theta)
        right, bent = (tree.estimate(theta, weights[name])[0] for name in ("own tokens", "divided by own and replies"))
        more.append(float(((bent / bent.norm() - right / right.norm()) * of_talking).sum()) > 0)
    assert (sum(more), len(more)) == (9, 20)
