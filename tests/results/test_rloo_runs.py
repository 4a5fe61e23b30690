"""The recorded runs behind the chapter on RLOO: whole, and still what the code of today begins to do."""

from dataclasses import replace

import pytest
import torch

from rlhf_minimal.functional import advantages
from rlhf_minimal.training import train
from tests.results.scripts import load

script, RECORD = load("rloo_runs")
RUNS = {(run["arm"], run["seed"]): run for run in RECORD["runs"]}


def test_every_arm_has_every_seed_and_every_step():
    assert list(RUNS) == [(arm, seed) for arm in script.ARMS for seed in script.SEEDS]
    assert all(len(run[name]) == script.STEPS for run in RUNS.values() for name in script.KEPT)
    assert (RECORD["steps"], RECORD["samples_per_step"]) == (script.STEPS, script.PROMPTS * script.GROUP)
    assert {"torch", "transformers", "rlhf_minimal", "python"} <= set(RECORD["versions"])


def test_arms_differ_in_the_advantage_alone():
    first = script.ARMS["rloo-0.001"]
    for row in script.ARMS.values():
        assert replace(row, advantage=first.advantage, normalize=first.normalize) == first
    assert first.kl == ()
    assert first.normalize is None


def test_the_batchs_mean_counts_completions_and_not_tokens():
    mask = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]])
    paid = advantages.place_rewards(torch.tensor([1.0, 0.0]), mask)
    wanted = torch.tensor([[0.5, 0.5, 0.5], [-0.5, 0.0, 0.0]])
    torch.testing.assert_close(script.batch_centered(paid, mask), wanted)


def test_the_first_samples_are_the_same_whatever_the_advantage():
    for seed in script.SEEDS:
        assert len({RUNS[arm, seed]["accuracy"][0] for arm in script.ARMS}) == 1


def test_leaving_one_out_changes_the_gradients_length_and_no_completion():
    for seed in script.SEEDS:
        one, other = RUNS["rloo-0.001", seed], RUNS["centred-0.001", seed]
        assert all(one[name] == other[name] for name in ("accuracy", "sampled", "greedy"))
        share = (script.GROUP - 1) / script.GROUP
        assert [x * share for x in one["grad_norm"]] == pytest.approx(other["grad_norm"], rel=2e-3)


@pytest.mark.parametrize("arm", script.ARMS)
def test_the_first_steps_come_out_as_recorded(arm):
    """Another machine may round differently and draw a few other tokens: the tolerance is five completions of 256."""
    learner, what = script.begin(arm, 0, steps=2)
    found, recorded = script.kept(train(learner, what)), RUNS[arm, 0]
    for step in range(2):
        assert found["accuracy"][step] == pytest.approx(recorded["accuracy"][step], abs=0.02)
        assert found["kl"][step] == pytest.approx(recorded["kl"][step], abs=0.01)
        assert found["grad_norm"][step] == pytest.approx(recorded["grad_norm"][step], rel=0.1)
