"""What is peculiar to the exercises on reward models: their solutions against sampling and enumeration."""

import torch

from rlhf_book.exercises import BUGS, EXERCISES
from rlhf_book.exercises.reward_models.bugs import mended_dpo, suspect_dpo
from rlhf_book.exercises.reward_models.flipped import my_best_accuracy
from rlhf_book.exercises.reward_models.from_wins import my_policy
from rlhf_book.exercises.reward_models.rise import my_share_that_rises
from rlhf_book.tabular import Tree

IDS = ["rm-flipped", "rm-from-wins", "rm-rise", "rm-free-numbers"]


def test_they_stand_in_the_order_of_the_chapter_and_its_depth():
    assert [name for name in EXERCISES if name.startswith("rm-")] == IDS
    assert {"rm-same-reference", "rm-last-token"} <= set(BUGS)


def test_the_limit_is_what_the_true_order_reaches_on_drawn_labels():
    generator = torch.Generator().manual_seed(0)
    gaps = torch.tensor([1.0, -2.0, 0.5]).double()
    n, flip = 200_000, 0.2
    says_first = torch.rand(n, 3, generator=generator) < gaps.sigmoid()
    written = says_first ^ (torch.rand(n, 3, generator=generator) < flip)
    agrees = (written == (gaps > 0)).double().mean()
    assert abs(my_best_accuracy(gaps, flip) - agrees) < 0.003


def test_the_policy_of_win_rates_is_the_tilted_reference():
    tree = Tree()
    ref, r, beta = tree.random_logits(1), torch.linspace(-1, 1, 15).double(), 0.7
    best, _ = tree.tilted(ref, r / beta)
    found = my_policy(tree.probs(ref), (r[:, None] - r[None, :]).sigmoid(), beta)
    assert torch.allclose(found, tree.probs(best), atol=1e-12)


def test_the_share_that_rises_agrees_with_drawn_pairs():
    generator = torch.Generator().manual_seed(0)
    ref, r, beta = torch.tensor([0.6, 0.3, 0.1]).double(), torch.tensor([0.0, 1.0, 3.0]).double(), 0.5
    best = (ref.log() + r / beta).softmax(0)
    first, second = torch.multinomial(ref, 400_000, replacement=True, generator=generator).view(2, -1)
    wins = torch.rand(len(first), generator=generator) < (r[first] - r[second]).sigmoid()
    chosen = torch.where(wins, first, second)
    assert abs((best > ref)[chosen].double().mean() - my_share_that_rises(ref, r, beta)) < 0.005


def test_the_bug_trains_and_its_loss_stands_still():
    theta = torch.zeros(3)
    losses = suspect_dpo(theta, [(0, 1), (0, 2)], 20)
    assert max(losses) - min(losses) < 1e-6
    assert theta.softmax(0)[0] > 0.95
    held = torch.zeros(3)
    assert mended_dpo(held, [(0, 1), (0, 2)], 20)[-1] < 0.3
