"""The recorded runs on the clock: what an arm is, and that the code of today begins to do what was recorded."""

import pytest

from rlhf_minimal.functional import advantages
from tests.results.scripts import load

script, RECORD = load("clock_runs")
RUNS = {(run["arm"], run["seed"]): run for run in RECORD["runs"]}
ON_FILE = list(dict.fromkeys(arm for arm, _ in RUNS))


def test_growth_and_its_control_have_every_seed_and_every_step():
    for arm in ("growth", "coin"):
        for seed in script.SEEDS:
            assert all(len(RUNS[arm, seed][name]) == script.GROWTH.steps for name in script.KEPT)
    assert set(ON_FILE) <= set(script.ARMS)


@pytest.mark.parametrize("arm", ON_FILE)
def test_the_first_steps_are_those_on_record(arm):
    again = script.run(arm, 0, steps=2)
    for name in ("accuracy", "length", "right"):
        assert again[name] == pytest.approx(RUNS[arm, 0][name][:2], abs=0.02 if name != "length" else 0.5)


def test_the_arms_differ_in_what_pays_for_steps_alone():
    outcome = script.recipe("outcome", 0)
    for arm, cell in script.CELLS.items():
        plan = script.recipe(arm, 0)
        assert plan.algorithm.advantage is cell
        assert plan.config == outcome.config
        assert plan.task.name == outcome.task.name
        assert plan.step_reward is not None
    assert outcome.algorithm.advantage is advantages.group_normalized
    assert script.recipe("growth", 3).algorithm == script.recipe("coin", 3).algorithm
    assert script.recipe("growth", 3).config == script.recipe("coin", 3).config


def test_growth_follows_the_verifier_and_not_the_coin():
    for seed in script.SEEDS:
        run, coin = RUNS["growth", seed], RUNS["coin", seed]
        assert run["last_accuracy"] > 0.5 > 0.15 > coin["last_accuracy"]
        assert run["last_length"] > 2 * coin["last_length"]
        assert coin["last_length"] < 1.3 * coin["length"][0]
