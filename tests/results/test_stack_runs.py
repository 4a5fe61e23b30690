"""The recorded runs of the task `stack`: whole, still what the code begins to do, and saying what its text says."""

import pytest

from rlhf_minimal.train import train
from tests.results.scripts import load

script, RECORD = load("stack_runs")
RUNS = {(run["arm"], run["seed"]): run for run in RECORD["runs"]}


def of(arm, key):
    return [RUNS[arm, seed][key] for seed in script.SEEDS]


def test_every_arm_has_every_seed_and_every_step():
    assert list(RUNS) == [(arm, seed) for arm in script.ARMS for seed in script.SEEDS]
    assert all(len(run[name]) == script.STEPS == RECORD["steps"] for run in RUNS.values() for name in script.KEPT)
    assert {"torch", "transformers", "rlhf_minimal", "python"} <= set(RECORD["versions"])


@pytest.mark.parametrize("arm", script.ARMS)
def test_the_first_steps_come_out_as_recorded(arm):
    """Another machine may round differently and draw a few other tokens: the tolerance is ten completions of 256."""
    learner, recipe = script.begin(arm, 0, steps=2)
    history = train(learner, recipe)
    for step in range(2):
        for name in ("reward", "accuracy"):
            assert history[step][name] == pytest.approx(RUNS[arm, 0][name][step], abs=0.04)


def test_hidden_tests_teach_the_function_and_visible_ones_the_table():
    """The figures in the text of `lab.stack`."""
    assert [round(100 * end(of("hidden", "sampled"))) for end in (min, max)] == [94, 97]
    assert [round(100 * end(of("visible", "sampled"))) for end in (min, max)] == [38, 43]
    assert [round(100 * end(of("visible", "tables"))) for end in (min, max)] == [56, 59]
    assert [round(100 * end(of("coin", "sampled"))) for end in (min, max)] == [4, 9]
    assert max(of("hidden", "tables")) < 0.01
    for seed in script.SEEDS:
        visible = RUNS["visible", seed]
        assert min(visible["accuracy"][:10]) < 0.08
        assert 0.83 < visible["reward"][9] < 0.97
        assert max(visible["accuracy"][-5:]) < 0.5 < 0.85 < min(RUNS["hidden", seed]["accuracy"][-5:])
