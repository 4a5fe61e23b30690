"""The recorded runs behind the chapter on soft gates: whole, and still what the code of today begins to do."""

from dataclasses import replace

import pytest
import torch

from rlhf_minimal.train import train
from tests.results.scripts import load

script, RECORD = load("gate_runs")
RUNS = {(run["arm"], run["seed"]): run for run in RECORD["runs"]}


def test_every_arm_has_every_seed_every_step_and_every_update():
    assert list(RUNS) == [(arm, seed) for arm in script.ARMS for seed in script.SEEDS]
    for run in RUNS.values():
        assert all(len(run[name]) == script.STEPS for name in script.KEPT)
        assert all(len(run[name]) == script.UPDATES for name in script.SEEN)
    assert (RECORD["steps"], RECORD["updates"]) == (script.STEPS, script.UPDATES)
    assert {"torch", "transformers", "rlhf_minimal", "python"} <= set(RECORD["versions"])


def test_arms_differ_in_the_gate_alone():
    """But for GMPO, whose mean is geometric, and which has the gate of another arm."""
    first = script.ARMS["clip"]
    assert first.kl == ()
    for name, row in script.ARMS.items():
        other = {"aggregate": first.aggregate} if name == "gmpo" else {}
        assert replace(row, gate=first.gate, **other) == first
    assert script.ARMS["gmpo"].gate == script.ARMS["log-clip"].gate
    assert script.ARMS["gmpo"].aggregate != first.aggregate


def test_on_fresh_samples_all_arms_are_one():
    """The first rollout is drawn before any update, and at every first update all ratios are 1."""
    for seed in script.SEEDS:
        assert len({RUNS[arm, seed]["reward"][0] for arm in script.ARMS}) == 1
        for arm in script.ARMS:
            run = RUNS[arm, seed]
            assert run["spread"][0] < 1e-3
            assert run["weight"][0] == pytest.approx(0.2 if arm == "cispo-0.2" else 1.0, abs=1e-3)
            assert run["silent"][0] == 0


@pytest.mark.parametrize("arm", script.ARMS)
def test_the_first_step_comes_out_as_recorded(arm):
    """Another machine may round differently and draw a few other tokens: the tolerance is ten completions of 256."""
    learner, what, watch = script.begin(arm, 0, steps=2)
    found, recorded = script.kept(train(learner, what), watch), RUNS[arm, 0]
    assert found["reward"][0] == pytest.approx(recorded["reward"][0], abs=0.02)
    assert found["reward"][1] == pytest.approx(recorded["reward"][1], abs=0.04)
    assert found["kl"][1] == pytest.approx(recorded["kl"][1], abs=0.05)
    assert found["weight"][0] == pytest.approx(recorded["weight"][0], abs=1e-3)


def test_what_the_gate_writes_down():
    """Three tokens and one of padding: their weights by hand."""
    watch = script.Watch(script.ARMS["clip"].gate)
    ratio = torch.tensor([[1.5, 0.9], [0.5, 1.0]]).requires_grad_() * 1
    watch(ratio, torch.tensor([[1.0, 2.0], [1.0, 0.0]]))
    assert watch.seen["outside"] == [pytest.approx(2 / 3)]
    assert watch.seen["silent"] == [pytest.approx(1 / 3)]
    assert watch.seen["weight"] == [pytest.approx((0 + 0.9 + 0.5) / 3)]
    assert watch.seen["spread"] == [pytest.approx(torch.tensor([1.5, 0.9, 0.5]).log().std().item(), rel=1e-5)]
    watch(ratio.detach().requires_grad_(), torch.ones(2, 2))  # the metrics' call: nothing is written
    assert len(watch.seen["weight"]) == 1
