"""The recorded runs of the pipeline: whole, what their page says of them, and what today's code begins to do."""

import statistics

import pytest

from rlhf_minimal.train import train
from tests.results.scripts import load

script, RECORD = load("ppo_rlhf")
RUNS = {(run["arm"], run["seed"]): run for run in RECORD["runs"]}


def of(arm, name):
    return [RUNS[arm, seed][name] for seed in script.SEEDS]


def test_every_arm_has_every_seed_and_every_step():
    assert sorted(RUNS) == sorted((arm, seed) for arm in script.ARMS for seed in script.SEEDS)
    for run in RUNS.values():
        assert all(len(run[f"{name}_of_step"]) == script.STEPS for name in script.KEPT)
        assert run["attained"] == pytest.approx(script.attained(run["gold_before"], run["gold"]), abs=1e-3)
    assert {"torch", "transformers", "rlhf_minimal", "python"} <= set(RECORD["versions"])


def test_with_a_kl_penalty_ppo_goes_nine_tenths_of_the_way_in_every_seed():
    assert all(share >= 0.9 for share in of("beta-0.05", "attained"))
    assert all(4 < kl < 9 for kl in of("beta-0.05", "kl"))


def test_without_one_the_reward_model_is_pleased_and_the_cook_is_not():
    below = 0
    for seed in script.SEEDS:
        run = RUNS["beta-0", seed]
        begin, end = (statistics.mean(run["reward_of_step"][part]) for part in (slice(5), slice(-5, None)))
        best = max(statistics.mean(run["gold_of_step"][i : i + 5]) for i in range(script.STEPS - 5))
        assert end > begin + 1  # in standard deviations of the reward model's score
        assert run["proxy"] > RUNS["beta-0.05", seed]["proxy"]
        assert run["gold"] < best - 2
        assert run["gold"] < RUNS["beta-0.05", seed]["gold"] - 3
        below += run["gold"] < run["gold_before"]
    assert below == 2  # as the page says


def test_a_stronger_kl_penalty_ends_nearer_to_the_start():
    ends = [statistics.mean(of(arm, "kl")) for arm in script.ARMS]
    assert ends == sorted(ends, reverse=True)
    golds = [statistics.mean(of(arm, "gold")) for arm in script.ARMS]
    best = golds.index(max(golds))
    assert 0 < best < len(golds) - 1  # neither end of the sweep: a curve with a top


@pytest.mark.parametrize("arm", ["beta-0", "beta-0.1"])
def test_the_first_steps_come_out_as_recorded(arm):
    """Another machine may round differently and draw a few other tokens of the 2500 of a step."""
    learner, recipe = script.begin(arm, 0, steps=2)
    history = train(learner, recipe)
    recorded = RUNS[arm, 0]
    for step in range(2):
        assert history[step]["gold"] == pytest.approx(recorded["gold_of_step"][step], abs=0.25)
        assert history[step]["reward"] == pytest.approx(recorded["reward_of_step"][step], abs=0.1)
        assert history[step]["entropy"] == pytest.approx(recorded["entropy_of_step"][step], abs=0.02)


def test_best_of_n_begins_at_the_start_and_rises_in_proxy():
    assert script.kl_of_best_of(1) == 0
    for seed in script.SEEDS:
        run = RUNS["beta-0", seed]
        assert run["best_of_n_proxy"] == sorted(run["best_of_n_proxy"])
        assert run["best_of_n_gold"][0] == pytest.approx(run["gold_before"], abs=0.5)
