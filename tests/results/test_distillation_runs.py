"""The recorded runs on distillation: whole, and still what the code of today begins to do."""

import math

import pytest
import torch

from rlhf_minimal import ALGORITHMS, Batch, policy_loss
from rlhf_minimal.train import roll_out
from tests.results.scripts import load

script, RECORD = load("distillation_runs")
grid, GRID = load("distillation_grid")
RUNS = {(run["arm"], run["seed"]): run for run in RECORD["runs"]}


def test_every_arm_has_every_seed_and_every_step():
    assert list(RUNS) == [(arm, seed) for arm in script.ARMS for seed in script.SEEDS]
    for run in RUNS.values():
        for name in ("loss", "right", "tokens", "grad_norm"):
            assert len(run[name]) == script.steps_of(run["arm"])
            assert all(map(math.isfinite, run[name]))
        assert 0 <= run["greedy"] <= run["pass_at_8"] <= 1
    assert RECORD["steps"] == script.STEPS
    assert RECORD["completions_a_step"] == script.PROMPTS * script.GROUP
    assert {"torch", "transformers", "rlhf_minimal", "python"} <= set(RECORD["versions"])


def test_the_rates_are_the_best_of_the_grid_on_another_seed():
    assert [(one["arm"], one["seed"]) for one in GRID["runs"]] == [(arm, 100) for arm in grid.TRIED]
    assert not set(grid.SEEDS) & set(script.SEEDS)
    found = {one["arm"]: one["held_out"][-1] for one in GRID["runs"]}
    for (arm, _), run in RUNS.items():
        own = {"coin": "rl"} | dict.fromkeys(script.LONG, "rest")
        own = own.get(arm, arm)
        best = max(found[f"{own}@{lr:g}"] for lr in grid.RATES)
        assert found[f"{own}@{run['lr']:g}"] == best
        assert run["lr"] == script.rates()[arm]


def test_the_losses_are_what_their_names_say():
    g = torch.Generator().manual_seed(0)
    student, taught = torch.randn(2, 128, 5, 13, generator=g, dtype=torch.float64)
    ids = torch.randint(13, (128, 5), generator=g)
    mask, rewards = torch.ones(128, 5), torch.randint(2, (128,), generator=g).float()
    p, u = student.softmax(-1), taught.softmax(-1)
    of = {arm: script.token_losses(arm, student, taught, ids, mask, rewards) for arm in script.ARMS}
    torch.testing.assert_close(of["full"], (p * (p / u).log()).sum(-1))
    torch.testing.assert_close(of["soft"], (u * (u / p).log()).sum(-1))
    assert torch.equal(of["soft"], of["cover"])
    top = u.topk(3).indices
    a, b = p.gather(-1, top), u.gather(-1, top)
    kept = (a * (a / b).log()).sum(-1)  # what a sum over the top 3 alone has, and the two ways to complete it
    left, right = a.sum(-1), b.sum(-1)
    torch.testing.assert_close(of["cut"], kept)
    torch.testing.assert_close(of["renormal"], kept / left - (left / right).log())
    torch.testing.assert_close(of["rest"], kept + (1 - left) * ((1 - left) / (1 - right)).log())
    assert (of["rest"] >= 0).all()
    assert (of["rest"] <= of["full"] + 1e-12).all()
    assert all(torch.equal(of[long], of[arm]) for long, arm in script.LONG.items())
    assert torch.equal(of["rl"], of["coin"])  # the rewards differ, which `train` hands over

    logits = student.clone().requires_grad_()
    own = logits.log_softmax(-1).gather(-1, ids[..., None])[..., 0]
    ref = taught.log_softmax(-1).gather(-1, ids[..., None])[..., 0]
    for arm, row in (("sampled", ALGORITHMS["opd"]),):
        mine = script.token_losses(arm, logits, taught, ids, mask, rewards).mean()
        batch = Batch(own, own.detach(), mask.double(), rewards.double(), 1, ref_logp=ref)
        both = [torch.autograd.grad(x, logits, retain_graph=True)[0] for x in (mine, policy_loss(row, batch))]
        torch.testing.assert_close(*both)


def test_the_teacher_writes_in_two_arms_alone():
    for seed in script.SEEDS:
        first = {arm: RUNS[arm, seed]["right"][0] for arm in script.ARMS}
        assert first["sft"] == first["soft"] > 0.8
        others = {first[arm] for arm in script.ARMS if arm not in script.BY_TEACHER}
        assert len(others) == 1
        assert others.pop() < 0.5


@pytest.mark.parametrize("arm", script.ARMS)
def test_the_first_steps_come_out_as_recorded(arm):
    """Another machine may round differently and draw a few other tokens: the tolerance is six answers of 128."""
    _, seen = script.train(arm, 0, lr=script.rates()[arm], steps=2)
    recorded = RUNS[arm, 0]
    for step in range(2):
        assert seen["right"][step] == pytest.approx(recorded["right"][step], abs=0.05)
        assert seen["loss"][step] == pytest.approx(recorded["loss"][step], rel=0.15, abs=0.05)
    assert seen["grad_norm"][0] == pytest.approx(recorded["grad_norm"][0], rel=0.1)


def test_the_start_is_measured_as_recorded():
    vocabulary = script.start()[1]
    problems = script.TASK.problems("held_out", 20, seed="distil/1", distinct=True)
    out = roll_out(script.start()[0], vocabulary, problems, script.recipe())
    assert out.correct.float().mean() < 0.7
    assert RECORD["start"]["sampled"] < 0.4
    assert RECORD["teacher"]["reverse_kl"] == RECORD["teacher"]["forward_kl"] == 0


@pytest.mark.parametrize("arm", script.BY_TOP)
def test_a_token_that_the_student_has_given_up_leaves_numbers(arm):
    """Probabilities below what float32 holds: the loss and its gradient stay finite, and are those of float64."""
    g = torch.Generator().manual_seed(1)
    taught = torch.randn(4, 3, 13, generator=g)
    student = torch.randn(4, 3, 13, generator=g)
    student.scatter_add_(-1, taught.topk(3).indices, torch.full((4, 3, 3), -110.0))
    student[0] = student[1]  # beside tokens of which the student still thinks
    losses, gradients = [], []
    for dtype in (torch.float32, torch.float64):
        logits = student.to(dtype).requires_grad_()
        loss = script.top_loss(arm, logits.log_softmax(-1), taught.to(dtype).log_softmax(-1))
        assert loss.isfinite().all()
        losses.append(loss.detach().double())
        gradients.append(torch.autograd.grad(loss.sum(), logits)[0].double())
        assert gradients[-1].isfinite().all()
    torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-4)
