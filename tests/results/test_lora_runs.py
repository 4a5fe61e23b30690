"""The recorded runs behind the chapter on scaling up, with and without LoRA: whole, and still what begins."""

import pytest

from rlhf_minimal.train import train
from tests.results.scripts import load

script, RECORD = load("lora_runs")
RUNS = {(run["arm"], run["seed"]): run for run in RECORD["runs"]}


def test_every_arm_has_every_seed_and_every_step():
    assert list(RUNS) == [(arm, seed) for arm in script.ARMS for seed in script.SEEDS]
    assert all(len(run["reward"]) == script.STEPS == RECORD["steps"] for run in RUNS.values())
    assert (RECORD["lr"], RECORD["lr_times"]) == (script.LR, script.LR_TIMES)


def test_arms_begin_as_the_same_model():
    for seed in script.SEEDS:
        assert len({RUNS[arm, seed]["reward"][0] for arm in script.ARMS}) == 1


@pytest.mark.parametrize("arm", script.ARMS)
def test_the_first_steps_come_out_as_recorded(arm):
    """Another machine may round differently and draw a few other tokens: the tolerance is ten completions of 512."""
    learner, recipe = script.begin(arm, 0, steps=2)
    assert sum(w.numel() for w in learner.policy.parameters() if w.requires_grad) == RUNS[arm, 0]["trained"]
    found = [step["reward"] for step in train(learner, recipe)]
    assert found == pytest.approx(RUNS[arm, 0]["reward"][:2], abs=0.02)
