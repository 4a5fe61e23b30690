"""The solutions on off-policy data, held to enumeration and to the library."""

import pytest
import torch

from rlhf_book.exercises.off_policy.break_even import my_break_even
from rlhf_book.exercises.off_policy.bugs import mended_left_behind, mended_nucleus_logp
from rlhf_book.exercises.off_policy.reach import my_reach
from rlhf_book.exercises.off_policy.sample_size import my_effective_share
from rlhf_book.exercises.off_policy.versions import my_log_weight
from rlhf_book.tabular import Tree
from rlhf_minimal import contrib


def test_the_effective_share_is_the_noise_of_a_weighted_mean():
    """For rewards that do not depend on the weights: variance of the weighted over that of the plain mean."""
    generator = torch.Generator().manual_seed(0)
    gap = 0.3 * torch.randn(6, 4, generator=generator, dtype=torch.float64)
    W = gap.sum(1).exp() / gap.sum(1).exp().sum()
    share = my_effective_share(gap - 5, torch.full_like(gap, -5.0), torch.ones_like(gap))
    assert share.item() == pytest.approx(1 / (6 * (W**2).sum().item()))


def test_break_even_is_where_the_distances_cross():
    n = my_break_even(0.5, 3.0, 9.0)
    assert 0.25 + 9 / n == pytest.approx(81 / n)


def test_the_weight_of_a_mixed_writer_makes_its_samples_exact():
    tree = Tree(3, 3)
    policy, first, second = (tree.random_logits(seed) for seed in range(3))
    switched_at = torch.ones(len(tree), dtype=torch.long)
    logs = [tree.logp(x) for x in (policy, first, second)]
    W = my_log_weight(*logs, switched_at, tree.mask).exp()
    p = torch.where(torch.arange(3) < 1, logs[1], logs[2]).sum(1).exp()
    rewards = tree.random_logits(9).flatten()[: len(tree)]
    assert (p * W * rewards).sum().item() == pytest.approx(tree.expect(policy, rewards).item())


@pytest.mark.parametrize("p", [0.002, 0.3, 0.9])
def test_reach_is_where_the_librarys_mask_ends(p):
    q = my_reach(p, 0.05)
    old, A = torch.tensor([[p]], dtype=torch.float64).log(), torch.ones(1, 1, dtype=torch.float64)
    for now, kept in ((q * (1 - 1e-6), 1.0), (q + (1 - q) * 1e-6, 0.0)):
        logp = torch.tensor([[now]], dtype=torch.float64).log()
        assert contrib.trust.dppo_kl(A, logp=logp, old_logp=old, advantages=A).item() == kept


def test_the_mended_mask_is_the_librarys():
    generator = torch.Generator().manual_seed(0)
    mask = (torch.arange(6) < torch.tensor([[6], [3], [1], [4]])).float()
    mu = -torch.rand(4, 6, generator=generator) - 0.5
    logp, A = mu - torch.rand(4, 6, generator=generator), torch.tensor([-1.0, -1.0, -1.0, 1.0])
    known = {"logp": logp, "sampler_logp": mu, "advantages": A[:, None].expand(4, 6)}
    assert torch.equal(mended_left_behind(logp, mu, A, mask), contrib.trust.off_policy_sequence(mask, **known)[:, 0])


def test_the_mended_log_probs_are_the_nucleus_samplers():
    tree = Tree(3, 2)
    logits = tree.random_logits(0)
    cut = tree.top_p(logits, 0.8)
    tokens = cut.argmax(-1)[None]
    found = mended_nucleus_logp(logits[None], tokens, torch.isfinite(cut)[None])
    assert torch.allclose(found, cut.log_softmax(-1).gather(-1, tokens.T).T)
