"""What is peculiar to the exercises on Dr. GRPO: solutions against enumeration, bugs against the library."""

import io
import math
from contextlib import redirect_stdout
from dataclasses import replace

import pytest
import torch

from rlhf_book.exercises import BUGS, EXERCISES
from rlhf_book.exercises.dr_grpo.effective_reward import my_effective_reward
from rlhf_book.exercises.dr_grpo.objective import my_objective
from rlhf_book.exercises.dr_grpo.residual import my_residual
from rlhf_book.exercises.dr_grpo.stop_drift import my_stop_drift
from rlhf_book.exercises.grpo.std_weight import my_weight
from rlhf_book.tabular import Tree
from rlhf_minimal import ALGORITHMS, Batch, policy_loss
from rlhf_minimal.functional import advantages, aggregation

IDS = ["stop-drift", "micro", "effective-reward", "residual", "objective", "weights", "loss"]


def test_they_stand_in_the_order_of_the_chapter():
    assert [name for name in EXERCISES if name.startswith("dr-grpo-")] == [f"dr-grpo-{name}" for name in IDS]


@pytest.mark.parametrize("G", [2, 3])
def test_the_effective_reward_is_what_a_leave_one_out_baseline_steps_along(G):
    """Every group of a small tree, through the library's loss."""
    tree = Tree(vocab=2, length=3)
    theta = tree.random_logits(3).requires_grad_()
    R = torch.tensor([0.0, 2.0, 1.0, 5.0], dtype=torch.float64)
    row = replace(ALGORITHMS["grpo"], kl=(), advantage=advantages.leave_one_out)

    def loss(logp, rows):
        return policy_loss(row, Batch(logp, logp, tree.mask[rows], R[rows], G))

    _, gradient = tree.expected_loss(loss, theta, G)
    effective = my_effective_reward(tree.probs(theta).detach(), R, tree.lengths, G)
    torch.testing.assert_close(-gradient, tree.policy_gradient(theta, effective))
    assert tree.expect(theta, effective * tree.lengths).abs() < 1e-12


def test_the_pull_to_stop_is_that_of_samples():
    generator = torch.Generator().manual_seed(0)
    for q in (0.125, 0.5):
        u = torch.rand(2_000_000, generator=generator, dtype=torch.float64)
        n = (u.log() / math.log1p(-q)).floor() + 1
        per_response = (1 - q * n) / n
        assert per_response.mean().item() == pytest.approx(my_stop_drift(q, 1.0), abs=5e-4)
        assert abs((1 - q * n).mean().item()) < 0.01  # under a constant: nothing


@pytest.mark.parametrize("q", [0.125, 0.5])
def test_the_residual_is_the_leading_term(q):
    """Against the exact expectation of 1/S: the relative error falls like 1/B."""

    def exact(B):
        pmf, total = B * math.log(q), 0.0
        for s in range(B, int(B / q * 8) + 400):
            total += math.exp(pmf) / s
            pmf += math.log1p(-q) + math.log(s / (s - B + 1))
        return total - q / B

    errors = [abs(exact(B) / my_residual(q, B) - 1) for B in (16, 64)]
    assert errors[1] < errors[0] / 3.5
    assert errors[1] < 0.03


@pytest.mark.parametrize("G", [2, 3, 8, 32])
def test_the_weight_is_the_derivative_of_the_objective(G):
    for p in (0.05, 0.4, 0.9):
        slope = (my_objective(p + 1e-6, G) - my_objective(p - 1e-6, G)) / 2e-6
        assert slope == pytest.approx(my_weight(p, G), rel=1e-6)
    assert my_objective(0.0, G) == 0


def test_an_infinite_group_ascends_the_arcsine():
    gaps = [abs(my_objective(0.3, G) - 2 * math.asin(math.sqrt(0.3))) for G in (8, 32, 128)]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 0.15


def test_the_mended_bugs_are_the_librarys():
    generator = torch.Generator().manual_seed(0)
    logp = -torch.rand(4, 3, generator=generator) - 1
    old = logp + 0.3 * torch.randn(4, 3, generator=generator)
    mask = torch.tensor([[1.0, 1, 1], [1, 0, 0], [1, 1, 0], [1, 1, 1]])
    rewards = torch.tensor([1.0, 0.0, 0.0, 1.0])
    mended = BUGS["half-a-repair"].mended(logp, old, rewards, mask, 2)
    torch.testing.assert_close(
        mended, policy_loss(ALGORITHMS["dr_grpo"], Batch(logp, old, mask, rewards, 2, budget=128))
    )
    x = torch.randn(4, 3, generator=generator)
    for parts in (1, 2, 3):
        torch.testing.assert_close(BUGS["own-denominators"].mended(x, mask, parts), -aggregation.token_mean(x, mask))


def per_completion(denominator):
    """The mended loss of the bug with another denominator of each completion's sum."""

    def loss(logp, old_logp, rewards, mask, group_size):
        groups = rewards.view(-1, group_size)
        advantages = (groups - groups.mean(1, keepdim=True)).flatten()[:, None]
        ratio = torch.exp(logp - old_logp)
        term = torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages) * mask
        return -(term.sum(1) / denominator(mask)).mean()

    return loss


@pytest.mark.parametrize(
    ("denominator", "mends"),
    [
        (lambda mask: 64, True),  # any constant
        (lambda mask: mask.sum() / len(mask), False),  # the token mean
        (lambda mask: 1 / len(mask), False),  # a plain sum
        (lambda mask: mask.shape[1], False),  # the padded width
        (lambda mask: mask.sum(1).max(), False),  # the batch's longest
        (lambda mask: mask.sum(1).clamp(min=2), False),
        (lambda mask: math.inf, False),  # nothing is learnt
    ],
    ids=["constant", "token mean", "plain sum", "padded width", "longest", "at least two", "nothing"],
)
def test_half_a_repair_is_mended_by_a_constant_alone(denominator, mends):
    verdict = BUGS["half-a-repair"].check(per_completion(denominator))
    assert verdict.passed == mends, verdict
    assert mends or "times the number of completions one weighs" in verdict.message


def test_half_a_repair_pays_by_length_and_accumulation_by_memory():
    with redirect_stdout(io.StringIO()) as out:
        BUGS["half-a-repair"].symptom(BUGS["half-a-repair"].wrong)
    prices = [float(line.split()[6]) for line in out.getvalue().splitlines()]
    assert prices == pytest.approx([1000 * 0.25 / 4 / n for n in (2, 8, 32, 128)], rel=1e-3)
    with redirect_stdout(io.StringIO()) as out:
        BUGS["own-denominators"].symptom(BUGS["own-denominators"].wrong)
    lines = [line.replace(",", "").split() for line in out.getvalue().splitlines()]
    ratios = [float(line[6]) / float(line[-1]) for line in lines]
    assert ratios == pytest.approx([1, 100, 100], rel=0.01)
