"""What is peculiar to the exercises on DeepSeek-R1: their solutions against listings and against training."""

import pytest
import torch

from rlhf_book.exercises import BUGS, EXERCISES
from rlhf_book.exercises.deepseek_r1.decided import my_format_groups
from rlhf_book.exercises.deepseek_r1.price import my_price
from rlhf_book.exercises.deepseek_r1.scale import my_scale
from rlhf_book.tongues import consistency
from rlhf_minimal.functional import advantages
from tests.exercises.answers.deepseek_r1 import listed_groups

IDS = ["r1-decided", "r1-price", "r1-scale"]


def test_they_stand_in_the_order_of_the_chapter():
    assert [name for name in EXERCISES if name.startswith("r1-")] == IDS
    assert "told-in-the-question" in BUGS


def test_the_groups_are_those_of_a_listing():
    for p, f, G in ((0.15, 0.4, 4), (0.9, 0.6, 3), (0.5, 0.2, 2)):
        args = (torch.tensor([p], dtype=torch.float64), torch.tensor([f], dtype=torch.float64))
        assert my_format_groups(*args, G).item() == pytest.approx(listed_groups(p, f, G))


def test_the_price_is_what_training_ends_with():
    """Expected steps of a softmax policy over three kinds, with and without the language."""
    accuracy, language = torch.tensor([0.80, 0.84, 0.86]).double(), torch.tensor([1.0, 0.0, 0.6]).double()
    for weight in (0.0, 0.1, 0.2, 2.0):
        z = torch.zeros(3, dtype=torch.float64)
        paid = accuracy + weight * language
        for _ in range(20_000):
            q = z.softmax(0)
            z = z + 5 * q * (paid - (q * paid).sum())
        end = (z.softmax(0) * accuracy).sum().item()
        assert accuracy.max().item() - end == pytest.approx(my_price(accuracy, language, weight), abs=2e-3)


def test_the_factor_gives_the_wanted_share_and_drops_out_of_a_z_score():
    generator = torch.Generator().manual_seed(0)
    rules = torch.rand(2000, 8, generator=generator, dtype=torch.float64)
    scores = 3 * torch.randn(1000, 8, generator=generator, dtype=torch.float64)
    spread = [x.std(1).mean().item() for x in (rules, scores)]
    factor = my_scale(*spread, 1 / 3, 0.4)
    push = [(factor * scores).std(1).sum(), rules.std(1).sum()]
    assert (push[0] / sum(push)).item() == pytest.approx(0.4)

    def z(x):
        return advantages.group_normalized(
            x.view(-1, 1), torch.ones(x.numel(), 1, dtype=x.dtype), group_size=8, eps=0.0
        )

    torch.testing.assert_close(z(scores), z(factor * scores))


def test_the_mended_reward_is_the_tasks():
    for text in ("3D8B(B)", "3d8b(b)", "", "(A)", "3d8B(b)"):
        assert BUGS["told-in-the-question"].mended("3+8+:", text) == consistency(text)
