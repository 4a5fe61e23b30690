"""The recorded runs on process reward models: whole, still what the code begins to do, and as their text says."""

import math
from dataclasses import replace

import pytest
import torch

from rlhf_minimal import contrib
from rlhf_minimal.lab.process_reward import sample_steps
from rlhf_minimal.lab.rows import StepRow
from rlhf_minimal.tasks import Step
from rlhf_minimal.train import train
from rlhf_minimal.train_state import Learner
from tests.results.scripts import load, separated

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
    assert plan.algorithm.advantage is (contrib.advantages.own_step if arm == "checker" else script.OUTCOME.advantage)
    plan = replace(plan, config=replace(plan.config, steps=2))
    policy, vocabulary = script.start()
    history = train(Learner.begin(policy, vocabulary, plan.algorithm, plan.config), plan)
    for step in range(2):
        assert history[step]["accuracy"] == pytest.approx(RUNS[arm, 0]["accuracy"][step], abs=0.05)
        assert history[step]["length"] == pytest.approx(RUNS[arm, 0]["length"][step], abs=1.5)


def test_a_scalar_cannot_read_what_the_position_before_knows():
    """Frozen bodies: the same hidden states, read where a move ends, or one position earlier with the token."""
    assert max(of("scalar-frozen", "last_auc")) < 0.6 < 0.99 < min(of("bilinear-frozen", "last_auc"))
    assert max(of("scalar", "last_auc")) < 0.92 < 0.97 < min(of("ratio", "last_auc"))


def test_as_marks_a_scorer_teaches_less_than_the_checker_and_more_than_the_outcome():
    last = {
        arm: torch.tensor([sum(RUNS[arm, seed]["accuracy"][-10:]) / 10 for seed in script.SEEDS])
        for arm in script.PAYERS
    }
    bounds = {"none": (0.475, 0.565), "checker": (0.575, 0.67), "ratio": (0.535, 0.6)}
    for arm, (low, high) in bounds.items():
        assert low < last[arm].min()
        assert last[arm].max() < high
    for before, after in (("none", "ratio"), ("none", "checker"), ("ratio", "checker")):
        assert separated(last[before], last[after])
        assert last[before].mean() < last[after].mean()


def test_what_the_text_says_came_out():
    bounds = {
        "log-prob": (0.99, 1.0),
        "scalar-frozen": (0.525, 0.575),
        "bilinear-frozen": (0.99, 1.0),
        "scalar": (0.635, 0.915),
        "ratio": (0.98, 1.0),
        "outcome": (0.83, 0.905),
    }
    for arm, (low, high) in bounds.items():
        assert low <= min(of(arm, "last_auc"))
        assert max(of(arm, "last_auc")) <= high
    weights = {
        ("none", "majority"): (0.32, 0.42),
        ("checker", "steps"): (0.585, 0.71),
        ("ratio", "min"): (0.565, 0.70),
        ("outcome", "sum"): (0.38, 0.55),
        ("scalar", "min"): (0.38, 0.51),
    }
    for (arm, name), (low, high) in weights.items():
        votes = [votes[name][2] for votes in of(arm, "votes")]  # of 16
        assert low <= min(votes)
        assert max(votes) <= high


def test_labels_of_shares_teach_a_ratio_little_unless_they_compare_two_steps():
    bounds = {
        "shepherd-ratio": (0.42, 0.60, 0.50, 0.635),
        "hard-ratio": (0.61, 0.685, 0.72, 0.785),
        "shepherd-scalar": (0.535, 0.56, 0.575, 0.62),
        "shepherd-bilinear-frozen": (0.80, 0.835, 0.86, 0.905),
        "kept-ratio": (0.79, 0.855, 0.82, 0.87),
    }
    for arm, (low, high, place_low, place_high) in bounds.items():
        assert low <= min(of(arm, "last_auc"))
        assert max(of(arm, "last_auc")) <= high
        assert place_low <= min(of(arm, "place_auc"))
        assert max(of(arm, "place_auc")) <= place_high
    for right, wrong, after in of("shepherd-ratio", "mean_labels"):
        assert 0.28 < right < 0.297
        assert 0.025 < wrong < 0.035
        assert 0.025 < after < 0.035
    for key, low, high in (("labels_auc", 0.59, 0.605), ("labels_place_auc", 0.74, 0.764)):
        assert low < min(of("shepherd-ratio", key))
        assert max(of("shepherd-ratio", key)) < high
    assert sum(wrong > right for right, wrong in of("shepherd-ratio", "mean_scores")) == 1  # in the other two less
    assert all(0.69 < losses[-1] < 0.71 for losses in of("shepherd-ratio", "losses"))
    assert all(0.34 < losses[-1] < 0.36 for losses in of("shepherd-bilinear-frozen", "losses"))
    assert (min(of("kept-ratio", "labels")), max(of("kept-ratio", "labels"))) == (1667, 1755)
    assert all(0.875 < auc[1] < 0.91 and auc[2] < auc[1] - 0.04 for auc in of("kept-ratio", "auc"))


def test_votes_by_what_kept_labels_teach_lie_between_the_majority_and_labels_by_program():
    majority = [votes["majority"][2] for votes in of("kept-ratio", "votes")]
    kept, program = (torch.tensor([votes["min"][2] for votes in of(arm, "votes")]) for arm in ("kept-ratio", "ratio"))
    assert 0.51 < kept.min()
    assert kept.max() < 0.665
    assert separated(torch.tensor(majority), kept)
    assert separated(kept, program)
    assert 0.035 < (program - kept).min()
    assert (program - kept).max() < 0.085


def test_what_a_step_keeps_of_the_chance_of_success():
    row = StepRow("3+8+5+.", "3d8l5p=q", tuple(map(Step, (2, 4, 6, 8), (0.75, 1.0, 0.25, 0.0))))
    marks = [mark for _, mark in script.kept(row).steps]
    assert math.isnan(marks[0])  # nobody asked what the problem was worth before the first step
    assert marks[1:3] == [1.0, 0.25]
    assert math.isnan(marks[3])  # a quarter is too little to divide by
    assert [mark for _, mark in script.hard(row).steps] == [1, 1, 1, 0]


def test_pairs_are_compared_at_equal_places():
    scores, left = torch.tensor([0.0, 1.0, 9.0, 8.0, 5.0]), torch.tensor([1, 1, 2, 2, 3])
    right = torch.tensor([True, False, True, False, True])
    assert script.at_equal_places(scores, right, left) == 0.5  # wrong in one place, right in another; one is alone
    rows = [StepRow("1+1+1+.", "", ())] * 2
    reached, left = script.places(rows, [[1.0, 0.0, 1.0], [1.0]])
    assert reached.tolist() == [True, True, False, True]
    assert left.tolist() == [2, 1, 0, 2]


def test_todays_labels_say_what_is_on_record():
    """On 150 completions in place of 3000."""
    rows = sample_steps(*script.start(), script.SAMPLING, 150, labels="shepherd", seed=0, rollouts=script.ROLLOUTS)
    found, recorded = script.about_labels(rows), RUNS["shepherd-ratio", 0]
    assert found["mean_labels"] == pytest.approx(recorded["mean_labels"], abs=0.06)
    assert found["labels_place_auc"] == pytest.approx(recorded["labels_place_auc"], abs=0.06)
