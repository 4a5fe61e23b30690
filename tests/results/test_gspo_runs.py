"""The recorded runs behind the chapter on GSPO: whole, and still what the code of today begins to do."""

from dataclasses import replace

import pytest
import torch

from rlhf_minimal.train import train
from tests.results.scripts import load

script, RECORD = load("gspo_runs")
RUNS = {(run["arm"], run["seed"]): run for run in RECORD["runs"]}


def test_every_arm_has_every_seed_every_step_and_every_minibatch():
    assert list(RUNS) == [(arm, seed) for arm in script.ARMS for seed in script.SEEDS]
    for run in RUNS.values():
        assert all(len(run[name]) == script.STEPS for name in (*script.KEPT, *script.SEEN))
        assert all(len(step) == script.MINIBATCHES for name in script.SEEN for step in run[name])
    assert (RECORD["steps"], RECORD["minibatches"]) == (script.STEPS, script.MINIBATCHES)
    assert {"torch", "transformers", "rlhf_minimal", "python"} <= set(RECORD["versions"])


def test_arms_differ_in_ratio_and_gate_alone():
    first = script.ARMS["grpo"]
    assert first.kl == ()
    for row in script.ARMS.values():
        assert replace(row, ratio=first.ratio, gate=first.gate) == first


def test_on_fresh_samples_all_arms_are_one():
    """The first minibatch of the first step clips nothing, and its reward is the same whatever the arm."""
    for seed in script.SEEDS:
        first = [RUNS[arm, seed] for arm in script.ARMS]
        assert len({run["reward"][0] for run in first}) == 1
        assert all(step[0] == 0 for run in first for step in run["tokens_clipped"])


@pytest.mark.parametrize("arm", script.ARMS)
def test_the_first_steps_come_out_as_recorded(arm):
    """Another machine may round differently and draw a few other tokens: the tolerance is ten completions of 512."""
    learner, what, watched = script.begin(arm, 0, steps=2)
    found, recorded = script.kept(train(learner, what), watched), RUNS[arm, 0]
    for step in range(2):
        assert found["reward"][step] == pytest.approx(recorded["reward"][step], abs=0.02)
        assert found["kl"][step] == pytest.approx(recorded["kl"][step], abs=0.01)
        for name in ("tokens_clipped", "responses_clipped"):
            assert found[name][step] == pytest.approx(recorded[name][step], abs=0.05)


def test_what_the_gate_writes_down():
    """Two responses of two tokens and one that is padded: shares among what has an advantage."""
    watched = script.Clipping(script.ARMS["grpo"].gate)
    ratio = (torch.tensor([[0.3, 0.0], [0.3, 0.3], [0.1, 0.0]]).requires_grad_() * 1).exp()
    watched(ratio, torch.tensor([[1.0, 1.0], [1.0, 1.0], [-1.0, 0.0]]))
    assert watched.tokens == [pytest.approx(3 / 5)]
    assert watched.responses == [pytest.approx(1 / 3)]
