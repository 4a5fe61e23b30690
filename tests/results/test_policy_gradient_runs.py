"""The recorded runs behind the chapter on policy gradients: whole, and still what the code of today begins to do."""

from dataclasses import replace

import pytest
import torch

from rlhf_minimal.functional import advantages
from rlhf_minimal.training import train
from tests.results.scripts import load

script, RECORD = load("policy_gradient_runs")
RUNS = {(run["arm"], run["seed"]): run for run in RECORD["runs"]}


def test_every_arm_has_every_seed_and_every_step():
    assert list(RUNS) == [(arm, seed) for arm in script.ARMS for seed in script.SEEDS]
    assert all(len(run[name]) == script.STEPS for run in RUNS.values() for name in script.KEPT)
    assert (RECORD["steps"], RECORD["samples_per_step"]) == (script.STEPS, script.PROMPTS * script.GROUP)
    assert {"torch", "transformers", "rlhf_minimal", "python"} <= set(RECORD["versions"])


def test_arms_differ_in_the_constant_and_the_mean_alone():
    first = script.ARMS["zero"]
    for row in script.ARMS.values():
        assert replace(row, shape=first.shape, advantage=first.advantage) == first
        assert row.advantage in (first.advantage, advantages.group_centered)
    rewards, lengths = torch.tensor([0.0, 1.0]), torch.tensor([3, 5])
    for name, wanted in {"plus-1": [1.0, 2.0], "minus-1": [-1.0, 0.0]}.items():
        assert script.ARMS[name].shape(rewards, lengths).tolist() == wanted


def test_the_first_samples_are_the_same_whatever_is_paid():
    for seed in script.SEEDS:
        assert len({RUNS[arm, seed]["accuracy"][0] for arm in script.ARMS}) == 1


def test_with_the_mean_the_constant_changes_nothing():
    for seed in script.SEEDS:
        one, other = (
            {name: value for name, value in RUNS[arm, seed].items() if name not in ("arm", "seconds")}
            for arm in ("mean", "plus-1-mean")
        )
        assert one == other


@pytest.mark.parametrize("arm", script.ARMS)
def test_the_first_steps_come_out_as_recorded(arm):
    """Another machine may round differently and draw a few other tokens: the tolerance is five completions of 256."""
    learner, what = script.begin(arm, 0, steps=2)
    found, recorded = script.kept(train(learner, what)), RUNS[arm, 0]
    for step in range(2):
        assert found["accuracy"][step] == pytest.approx(recorded["accuracy"][step], abs=0.02)
        assert found["kl"][step] == pytest.approx(recorded["kl"][step], abs=0.01)
        assert found["grad_norm"][step] == pytest.approx(recorded["grad_norm"][step], rel=0.1)
