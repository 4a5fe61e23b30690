"""The recorded runs behind the chapter on Kimi's losses: whole, and still what the code of today begins to do."""

import math
from dataclasses import replace

import pytest
import torch

from rlhf_minimal import ALGORITHMS, Batch, policy_loss
from tests.results.scripts import load

script, RECORD = load("kimi_runs")
RUNS = {(run["arm"], run["seed"]): run for run in RECORD["runs"]}


def test_every_arm_has_every_seed_and_every_step():
    assert list(RUNS) == [(arm, seed) for arm in script.ARMS for seed in script.SEEDS]
    for run in RUNS.values():
        for name in script.KEPT:
            assert len(run[name]) == script.STEPS
            assert all(map(math.isfinite, run[name]))
        assert all(0 <= b <= o <= 1 for b, o in zip(run["back"], run["outside"], strict=True))
        assert 0 <= run["sampled"] <= 1
    assert (RECORD["steps"], RECORD["samples_per_step"]) == (script.STEPS, script.PROMPTS * script.GROUP)
    assert {"torch", "transformers", "rlhf_minimal", "python"} <= set(RECORD["versions"])


def test_brakes_differ_in_the_cells_that_the_script_says():
    none = script.BRAKES["none"]
    for name in ("token", "seq", "seq-1", "var-1"):
        assert replace(script.BRAKES[name], kl=()) == none
    window, clip = script.BRAKES["window"], script.BRAKES["clip"]
    assert replace(script.BRAKES["k25"], kl=()) == window
    assert replace(window, gate=clip.gate) == clip
    assert clip.gate.keywords == window.gate.keywords
    assert replace(clip, ratio=none.ratio, gate=none.gate) == none
    assert script.BRAKES["seq"] == ALGORITHMS["kimi_k2"]
    assert script.BRAKES["k25"].kl == ALGORITHMS["kimi_k25"].kl
    assert script.BRAKES["token"].kl == ALGORITHMS["dro"].kl


def test_the_centred_pull_is_the_variance_of_the_residual():
    """Its gradient is that of the residual's variance within a group over 2 tau, here with tau 1."""
    generator = torch.Generator().manual_seed(0)
    G = script.GROUP
    old = -torch.rand(2 * G, 3, generator=generator, dtype=torch.float64) - 1
    logp = (old + 0.3 * torch.randn(2 * G, 3, generator=generator, dtype=torch.float64)).requires_grad_()
    mask = (torch.rand(2 * G, 3, generator=generator) < 0.8).double()
    mask[:, 0] = 1
    rewards = torch.rand(2 * G, generator=generator, dtype=torch.float64)
    loss = policy_loss(script.BRAKES["var-1"], Batch(logp, old, mask, rewards, G))
    residual = (rewards - ((logp - old) * mask).sum(1)).view(2, G)
    wanted = residual.var(1, correction=0).mean() / 2
    one, two = (torch.autograd.grad(x, logp)[0] for x in (loss, wanted))
    assert torch.allclose(one, two, atol=1e-12)


def test_on_fresh_samples_all_brakes_take_the_same_first_step(monkeypatch):
    """One arm stands for all: nothing but rounding differs, magnified by AdamW where a gradient is nearly 0."""
    monkeypatch.setattr(script, "ARMS", {name: (0, name, 8e-4) for name in script.BRAKES})
    ends = {}
    for name in script.BRAKES:
        learner, _, seen = script.train(name, 0, 1)
        assert seen["apart"] == [0.0]
        ends[name] = torch.cat([p.detach().flatten() for p in learner.policy.parameters()])
    for name, end in ends.items():
        assert (end - ends["none"]).abs().mean() < 1e-6, name  # a step is 8e-4


def test_old_samples_come_from_four_steps_before():
    learner, _, behind = script.begin("4-none-0.0008", 0)
    weight = next(iter(learner.policy.parameters()))
    for step in range(6):
        with torch.no_grad():
            weight += 1.0
        behind.follow(learner)
        apart = (weight - next(iter(behind.model.parameters()))).mean().item()
        assert apart == pytest.approx(min(step + 1, 4), abs=1e-4)


@pytest.mark.parametrize("arm", script.ARMS)
def test_the_first_steps_come_out_as_recorded(arm):
    """Another machine may round differently and draw a few other tokens: the tolerance is a dozen answers of 256."""
    _, _, seen = script.train(arm, 0, 3)
    recorded = RUNS[arm, 0]
    for step in range(3):
        assert seen["reward"][step] == pytest.approx(recorded["reward"][step], abs=0.05)
        assert seen["apart"][step] == pytest.approx(recorded["apart"][step], rel=0.15, abs=0.02)
    assert seen["grad_norm"][0] == pytest.approx(recorded["grad_norm"][0], rel=0.05, abs=1e-6)
