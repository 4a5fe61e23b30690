"""The recorded course to a reward model: whole, as good as it is said to be, and still what the commands do today."""

import pytest

from tests.results.scripts import load

script, RECORD = load("reward_runs")
RUNS = {(run["arm"], run["seed"]): run for run in RECORD["runs"]}
COURSES = [RUNS["defaults", seed] for seed in script.SEEDS]


def test_every_arm_has_every_seed():
    assert list(RUNS) == [(arm, seed) for arm in script.ARMS for seed in script.SEEDS]
    assert {"torch", "transformers", "rlhf_minimal", "python"} <= set(RECORD["versions"])


def test_with_the_defaults_a_reward_model_is_within_two_points_of_the_limit():
    """Accuracy averaged over the labels' noise, so that the labels' luck is not in it."""
    for run in COURSES:
        assert run["bayes"] - 0.02 < run["expected_accuracy"] < run["bayes"]
        assert run["gold_correlation"] > 0.85


def test_with_the_defaults_a_reward_model_is_as_sure_as_it_may_be():
    """A perfectly calibrated judge has an error, too: its share of right calls is counted from finitely many pairs."""
    for run in COURSES:
        assert run["calibration_error"] < run["calibration_floor"] + 3 * run["calibration_spread"]
        assert sum(line["pairs"] for line in run["table"]) == 2000


def test_imitating_guests_leaves_much_to_be_gained():
    """The best review has 9."""
    for run in COURSES:
        assert 0 < run["sft_gold"] < 2
        assert run["sft_gold_std"] > 2


def test_the_small_course_comes_out_as_recorded():
    """Another machine may round differently and draw a few other tokens."""
    found, recorded = script.run("small", 0), RUNS["small", 0]
    assert found["losses"] == pytest.approx(recorded["losses"], abs=0.05)
    assert found["expected_accuracy"] == pytest.approx(recorded["expected_accuracy"], abs=0.05)
    assert found["sft_gold"] == pytest.approx(recorded["sft_gold"], abs=0.5)
