"""What is peculiar to the exercises on trust regions: solutions against the library, and against enumeration."""

import pytest
import torch

from rlhf_book.exercises import BUGS, EXERCISES
from rlhf_book.exercises.trust_regions.beta import my_beta
from rlhf_book.exercises.trust_regions.bound import my_bound
from rlhf_book.exercises.trust_regions.length import my_step
from rlhf_book.exercises.trust_regions.product import my_product
from rlhf_book.tabular import Tree
from rlhf_minimal.lab.trust_region import (
    TrustRegion,
    conjugate_gradients,
    fisher_vector_product,
    trust_region_step,
)


def test_they_stand_in_the_order_of_the_chapter_and_its_depth():
    assert [name for name in EXERCISES if name.startswith("tr-")] == ["tr-product", "tr-length", "tr-beta", "tr-bound"]


def table(seed=0):
    generator = torch.Generator().manual_seed(seed)
    old, v = torch.randn(2, 3, 4, generator=generator, dtype=torch.float64)
    visits = torch.tensor([3.0, 1.0, 2.0], dtype=torch.float64)
    return old, visits, v


def mean_kl_of(old, visits, theta):
    kl = (old.softmax(-1) * (old.log_softmax(-1) - theta.log_softmax(-1))).sum(-1)
    return (visits * kl).sum() / visits.sum()


def test_the_product_is_the_librarys():
    old, visits, v = table()
    theta = old.clone().requires_grad_()
    found = fisher_vector_product([mean_kl_of(old, visits, theta)], [theta], v.flatten())
    torch.testing.assert_close(found.view_as(v), my_product(old.softmax(-1), visits, v))


def test_the_damped_step_is_the_librarys_before_its_line_search():
    old, visits, A = table(1)
    theta = old.clone().requires_grad_()
    F = torch.autograd.functional.hessian(lambda x: mean_kl_of(old, visits, x), old).reshape(12, 12)
    gain = lambda: (theta.softmax(-1) * A).sum()  # noqa: E731
    (g,) = torch.autograd.grad(gain(), theta)
    report = trust_region_step(
        [theta],
        lambda: [gain()],
        lambda: [mean_kl_of(old, visits, theta)],
        TrustRegion(1e-5, cg_iterations=50, cg_damping=0.1, cg_tolerance=0.0),
    )
    assert report.accepted
    longest = my_step(F, g.flatten(), 1e-5, 0.1).view_as(old)
    torch.testing.assert_close((theta - old).detach(), 0.8**report.backtracks * longest, rtol=1e-4, atol=1e-9)


def test_the_price_gives_the_bound_and_scales_with_the_advantages():
    old, _, A = table(2)
    p, A = old[0].softmax(-1), A[0]
    beta = my_beta(p, A, 0.02)
    new = (p.log() + A / beta).log_softmax(-1)
    assert (p * (p.log() - new)).sum().item() == pytest.approx(0.02, rel=1e-6)
    assert my_beta(p, 2 * A, 0.02) == pytest.approx(2 * beta, rel=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_no_policy_of_a_tree_breaks_the_bound(seed):
    tree = Tree(vocab=3, length=3)
    old, new = tree.random_logits(seed), tree.random_logits(seed + 50)
    generator = torch.Generator().manual_seed(seed)
    R = torch.rand(len(tree), generator=generator, dtype=torch.float64)
    V = tree.values(old, tree.outcome(R))
    after = torch.cat([V[:, 1:], torch.zeros(len(tree), 1, dtype=V.dtype)], 1)
    A = (tree.outcome(R) + after - V) * tree.mask
    for share in (0.1, 0.5, 1.0):
        moved = old + share * (new - old)
        ratio = (tree.logp(moved) - tree.logp(old)).exp()
        L = (tree.probs(old)[:, None] * ratio * A).sum()
        error = (tree.expect(moved, R) - tree.expect(old, R) - L).abs().item()
        alpha = (moved.softmax(-1) - old.softmax(-1)).abs().sum(-1).max().item() / 2
        assert error <= my_bound(alpha, A.abs().max().item(), 1.0, tree.length)


def test_the_mended_solver_is_the_librarys():
    A = torch.tensor([[4.0, 1.0], [1.0, 3.0]])
    b = torch.tensor([1.0, 2.0])
    theirs, _ = conjugate_gradients(lambda v: A @ v, b, iterations=2, tolerance=0.0)
    torch.testing.assert_close(BUGS["tr-overwritten"].mended(lambda v: A @ v, b, 2), theirs)
