"""What is peculiar to the exercises on KL divergence: their solutions against enumeration, their bugs against a sum."""

import torch

from rlhf_book.exercises import BUGS, EXERCISES
from rlhf_book.exercises.kl_divergence.optimum import my_optimum
from rlhf_book.exercises.kl_divergence.straight import my_straight_through
from rlhf_book.exercises.kl_divergence.variate import my_best_multiple
from rlhf_book.tabular import Tree

IDS = ["kl-variate", "kl-optimum", "kl-straight-through", "kl-support", "kl-control"]


def test_they_stand_in_the_order_of_the_chapter_and_its_depth():
    assert [name for name in EXERCISES if name.startswith("kl-")] == IDS
    assert {"diluted-penalty", "half-detached-k2"} <= set(BUGS)


def test_the_best_multiple_has_the_least_variance():
    policy, reference = torch.tensor([[0.7, 0.2, 0.1], [0.2, 0.3, 0.5]]).double()
    d = (policy / reference).log()

    def variance(c):
        k = d + c * ((-d).exp() - 1)
        assert torch.isclose((policy * k).sum(), (policy * d).sum())  # unbiased for every c
        return ((policy * k**2).sum() - (policy * k).sum() ** 2).item()

    best = my_best_multiple(policy, reference).item()
    assert variance(best) < min(variance(best + 0.01), variance(best - 0.01))
    assert variance(best) < variance(1.0)
    near = torch.tensor([0.3301, 0.3333, 0.3366]).double()
    assert abs(my_best_multiple(near, torch.ones(3).double() / 3) - 1) < 0.02


def test_the_optimum_is_that_of_the_tilted_policy():
    tree = Tree()
    ref, beta = tree.random_logits(3), 0.4
    R = (tree.tokens[:, 0] == 1).double()
    p = tree.expect(ref, R).item()
    best, _ = tree.tilted(ref, R / beta)
    share, distance = my_optimum(p, beta)
    assert abs(tree.expect(best, R).item() - share) < 1e-12
    assert abs(tree.kl(best, ref).item() - distance) < 1e-12


def test_the_straight_through_estimator_has_both():
    tree = Tree()
    theta, ref = tree.random_logits(0).requires_grad_(), tree.random_logits(1)
    logp, chance = tree.sequence_logp(theta), tree.probs(theta).detach()
    term = (chance * my_straight_through(logp, tree.sequence_logp(ref))).sum()
    assert torch.isclose(term, tree.kl(theta, ref))
    assert torch.allclose(tree.grad(term, theta), tree.grad(tree.kl(theta, ref), theta), atol=1e-12)
