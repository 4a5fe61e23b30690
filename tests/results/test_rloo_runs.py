"""The recorded runs behind the chapter on RLOO: whole, and still what the code of today begins to do."""

from dataclasses import replace

import pytest
import torch

from rlhf_minimal import ALGORITHMS
from rlhf_minimal.functional import advantages
from rlhf_minimal.train import train
from tests.results.scripts import load

script, RECORD = load("rloo_runs")
RUNS = {(run["arm"], run["seed"]): run for run in RECORD["runs"]}


def test_every_arm_has_every_seed_and_every_step():
    assert list(RUNS) == [(arm, seed) for arm in script.ARMS for seed in script.SEEDS]
    assert all(len(run[name]) == script.STEPS for run in RUNS.values() for name in script.KEPT)
    assert (RECORD["steps"], RECORD["samples_per_step"]) == (script.STEPS, script.PROMPTS * script.GROUP)
    assert {"torch", "transformers", "rlhf_minimal", "python"} <= set(RECORD["versions"])


def test_arms_differ_in_the_advantage_and_the_learning_rate_alone():
    first, lr = script.ARMS["rloo-0.001"]
    assert (first.kl, first.normalize, lr) == ((), None, 1e-3)
    for arm, (row, lr) in script.ARMS.items():
        assert replace(row, advantage=first.advantage, normalize=first.normalize) == first
        learner, what = script.begin(arm, 0)
        assert what.config.lr == learner.optimizer.param_groups[0]["lr"] == lr == float(arm.rpartition("-")[2])
        assert (what.reward.__qualname__ == "random_reward.<locals>.reward") == arm.startswith("coin")


def test_every_arm_of_the_sweep_has_three_rates():
    for name in script.SWEPT:
        assert {lr for arm, (_, lr) in script.ARMS.items() if arm.rpartition("-")[0] == name} == {3e-4, 1e-3, 2e-3}


@pytest.mark.parametrize(("arm", "name"), [("pp", "reinforce_pp"), ("pp-baseline", "reinforce_pp_baseline")])
def test_the_whitened_arms_have_the_advantage_of_reinforce_plus_plus(arm, name):
    arm, row = script.BASELINES[arm], ALGORITHMS[name]
    assert (arm.advantage, arm.normalize) == (row.advantage, row.normalize)


def test_the_batchs_mean_counts_completions_and_not_tokens():
    mask = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]])
    paid = advantages.place_rewards(torch.tensor([1.0, 0.0]), mask)
    wanted = torch.tensor([[0.5, 0.5, 0.5], [-0.5, 0.0, 0.0]])
    torch.testing.assert_close(script.batch_centered(paid, mask), wanted)


def test_the_first_samples_are_the_same_whatever_the_advantage():
    for seed in script.SEEDS:
        assert len({RUNS[arm, seed]["accuracy"][0] for arm in script.ARMS}) == 1


@pytest.mark.parametrize(("lr", "steps"), [("0.0003", script.STEPS), ("0.001", script.STEPS), ("0.002", 4)])
def test_leaving_one_out_changes_the_gradients_length_and_no_completion(lr, steps):
    """At the highest rate the runs part after some steps: a rounding is enough to draw another token."""
    share = (script.GROUP - 1) / script.GROUP
    for seed in script.SEEDS:
        one, other = RUNS[f"rloo-{lr}", seed], RUNS[f"centred-{lr}", seed]
        assert one["accuracy"][:steps] == other["accuracy"][:steps]
        norms = [x * share for x in one["grad_norm"][:steps]]
        assert norms == pytest.approx(other["grad_norm"][:steps], rel=2e-3)
        if steps == script.STEPS:
            assert all(one[name] == other[name] for name in ("sampled", "greedy"))


@pytest.mark.parametrize("arm", script.ARMS)
def test_the_first_steps_come_out_as_recorded(arm):
    """Another machine may round differently and draw a few other tokens: the tolerance is five completions of 256."""
    learner, what = script.begin(arm, 0, steps=2)
    found, recorded = script.kept(train(learner, what)), RUNS[arm, 0]
    for step in range(2):
        assert found["accuracy"][step] == pytest.approx(recorded["accuracy"][step], abs=0.02)
        assert found["kl"][step] == pytest.approx(recorded["kl"][step], abs=0.01)
        assert found["grad_norm"][step] == pytest.approx(recorded["grad_norm"][step], rel=0.1)
