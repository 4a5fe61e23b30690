"""The recorded runs on process reward models: whole, still what the code begins to do, and as their text says."""

from dataclasses import replace

import pytest

from rlhf_minimal.functional import advantages
from rlhf_minimal.training import train
from rlhf_minimal.training.learner import Learner
from tests.results.scripts import load

script, RECORD = load("prm_runs")
RUNS = {(run["arm"], run["seed"]): run for run in RECORD["runs"]}
SCORERS = [arm for arm in script.ARMS if arm not in ("checker", "none")]


def of(arm, key):
    return [RUNS[arm, seed][key] for seed in script.SEEDS]


def test_every_arm_has_every_seed_and_all_its_measures():
    assert list(RUNS) == [(arm, seed) for arm in script.ARMS for seed in script.SEEDS]
    for (arm, _), run in RUNS.items():
        assert ("auc" in run) == (arm in SCORERS)
        assert ("votes" in run) == (arm in script.VOTERS)
        assert ("accuracy" in run) == (arm in script.PAYERS)
        if arm in SCORERS and arm != "log-prob":
            assert len(run["auc"]) == 1 + script.config_of(arm).steps // script.EVERY == 1 + len(run["losses"])
        if arm in script.PAYERS:
            assert len(run["accuracy"]) == script.LOOP.steps


def test_nothing_is_known_before_training():
    """But for the head that reads the policy's log-prob."""
    assert all(RUNS[arm, seed]["auc"][0] == 0.5 for arm in SCORERS if arm != "log-prob" for seed in script.SEEDS)


def test_the_own_log_prob_is_as_recorded():
    assert script.run("log-prob", 0)["last_auc"] == pytest.approx(RUNS["log-prob", 0]["last_auc"], abs=0.01)


@pytest.mark.parametrize("arm", ["bilinear-frozen", "ratio", "outcome"])
def test_the_first_losses_come_out_as_recorded(arm):
    """The mean of the first 50 steps; the other arms differ from these in nothing but the head or the labels."""
    step, loss = next(script.learn(script.scorer_of(arm), arm, 0))
    assert step == 50
    assert loss == pytest.approx(RUNS[arm, 0]["losses"][0], abs=0.02)


@pytest.mark.parametrize("arm", ["none", "checker"])
def test_the_first_steps_of_rl_come_out_as_recorded(arm):
    plan = script.plan_of(arm, 0, None)
    assert plan.algorithm.advantage is (advantages.own_step if arm == "checker" else script.OUTCOME.advantage)
    plan = replace(plan, config=replace(plan.config, steps=2))
    policy, vocabulary = script.start()
    history = train(Learner.begin(policy, vocabulary, plan.algorithm, plan.config), plan)
    for step in range(2):
        assert history[step]["accuracy"] == pytest.approx(RUNS[arm, 0]["accuracy"][step], abs=0.05)
        assert history[step]["length"] == pytest.approx(RUNS[arm, 0]["length"][step], abs=1.5)


def test_a_scalar_cannot_read_what_the_position_before_knows():
    """Frozen bodies: the same hidden states, read where a move ends, or one position earlier with the token."""
    assert max(of("scalar-frozen", "last_auc")) < 0.6 < 0.99 < min(of("bilinear-frozen", "last_auc"))
    assert max(of("scalar", "last_auc")) < 0.9 < 0.97 < min(of("ratio", "last_auc"))


def test_as_marks_a_scorer_teaches_what_the_checker_teaches():
    last = {arm: [sum(RUNS[arm, seed]["accuracy"][-10:]) / 10 for seed in script.SEEDS] for arm in script.PAYERS}
    assert min(last["ratio"]) > 0.5
    assert min(last["checker"]) > 0.5


def test_what_the_text_says_came_out():
    bounds = {
        "log-prob": (0.99, 1.0),
        "scalar-frozen": (0.55, 0.575),
        "bilinear-frozen": (0.99, 1.0),
        "scalar": (0.63, 0.87),
        "ratio": (0.98, 0.99),
        "outcome": (0.83, 0.87),
    }
    for arm, (low, high) in bounds.items():
        assert low <= min(of(arm, "last_auc"))
        assert max(of(arm, "last_auc")) <= high
    weights = {
        ("none", "majority"): (0.32, 0.42),
        ("checker", "steps"): (0.58, 0.71),
        ("ratio", "min"): (0.58, 0.70),
        ("outcome", "sum"): (0.38, 0.55),
        ("scalar", "min"): (0.38, 0.51),
    }
    for (arm, name), (low, high) in weights.items():
        votes = [votes[name][2] for votes in of(arm, "votes")]  # of 16
        assert low <= min(votes)
        assert max(votes) <= high
