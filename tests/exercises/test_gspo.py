"""What is peculiar to the exercises on GSPO: their solutions against enumeration, their bugs against the library."""

import io
from contextlib import redirect_stdout
from dataclasses import replace

import pytest
import torch

from rlhf_book.exercises import BUGS, EXERCISES
from rlhf_book.exercises.gspo.gap import my_gap
from rlhf_book.exercises.gspo.noise import my_noise
from rlhf_book.exercises.gspo.reweight import my_reweighted_reward
from rlhf_book.tabular import Tree
from rlhf_minimal import ALGORITHMS, Batch, policy_loss
from rlhf_minimal.functional import ratios

IDS = ["gspo-jump", "gspo-noise", "gspo-gap", "gspo-reweight", "gspo-loss", "gspo-gradient", "gspo-token"]


def test_they_stand_in_the_order_of_the_chapter_and_its_depth():
    assert [name for name in EXERCISES if name.startswith("gspo-")] == IDS


def test_the_reweighted_reward_is_unbiased_and_the_geometric_mean_is_not():
    """Every completion of the tree, as a batch of one, weighted by its old probability."""
    tree = Tree()
    old, new = tree.random_logits(0), tree.random_logits(1)
    R = torch.arange(len(tree), dtype=torch.float64) % 3
    logp, old_logp = tree.logp(new), tree.logp(old)
    one = [slice(n, n + 1) for n in range(len(tree))]
    estimates = torch.stack([my_reweighted_reward(logp[n], old_logp[n], tree.mask[n], R[n]) for n in one])
    assert torch.isclose(tree.expect(old, estimates), tree.expect(new, R))
    geometric = ratios.sequence(logp, old_logp, tree.mask)[:, 0] * R
    assert not torch.isclose(tree.expect(old, geometric), tree.expect(new, R), rtol=1e-2)


def test_the_gap_is_second_order():
    """The error of the exercise's formula falls with the third power of the step."""
    generator = torch.Generator().manual_seed(0)
    d = torch.randn(4, 6, generator=generator, dtype=torch.float64)
    mask = torch.ones(4, 6, dtype=torch.float64)

    def error(h):
        return ((h * d).exp().mean(1) - (h * d).mean(1).exp() - my_gap(h * d, mask)).abs()

    assert (error(2e-3) / error(1e-3)).tolist() == pytest.approx([8] * 4, rel=0.05)


def test_the_variances_are_those_of_samples():
    generator = torch.Generator().manual_seed(0)
    sigma, n = 0.2, 8
    logs = sigma * torch.randn(400_000, n, generator=generator, dtype=torch.float64) - sigma**2 / 2
    measured = logs.sum(1).exp().var(), logs.exp().mean(1).var(), logs.mean(1).var()
    assert [x.item() for x in measured] == pytest.approx(my_noise(sigma, n), rel=0.02)


def test_the_mended_bugs_are_the_librarys():
    generator = torch.Generator().manual_seed(0)
    old = -torch.rand(4, 3, generator=generator) - 1
    logp = old + 0.01 * torch.randn(4, 3, generator=generator)
    mask = torch.tensor([[1.0, 1, 1], [1, 0, 0], [1, 1, 0], [1, 1, 1]])
    torch.testing.assert_close(BUGS["unsummed-ratio"].mended(logp, old, mask), ratios.sequence(logp, old, mask))
    advantages = torch.tensor([1.0, -0.5, 2.0, -1.0])
    batch = Batch(logp, old, mask, torch.zeros(4), 1, advantages=advantages)
    for name in ("gspo", "gspo_token"):
        row = replace(ALGORITHMS[name], kl=())
        torch.testing.assert_close(BUGS["loud-length"].mended(logp, old, advantages, mask), policy_loss(row, batch))


def test_the_unsummed_ratio_goes_to_one_with_the_length():
    with redirect_stdout(io.StringIO()) as out:
        BUGS["unsummed-ratio"].symptom(BUGS["unsummed-ratio"].wrong)
    lines = out.getvalue().splitlines()
    assert [line.split()[-4] for line in lines] == ["outside", "outside", "outside", "inside", "inside"]
