"""The recorded runs on a KL coefficient, fixed or adapted: whole, still what the code begins to do, and as told."""

import pytest
import torch

from rlhf_minimal.train import train
from tests.results.scripts import load, separated

script, RECORD = load("choosing_runs")
RUNS = {(run["arm"], run["seed"]): run for run in RECORD["runs"]}


def last(arm, name="accuracy"):
    return torch.tensor([RUNS[arm, seed][f"last_{name}"] for seed in script.SEEDS])


def best(kind):
    return max((arm for arm in script.ARMS if arm.startswith(kind)), key=lambda arm: last(arm).mean())


def test_every_arm_has_every_seed_and_every_step():
    assert list(RUNS) == [(arm, seed) for arm in script.ARMS for seed in script.SEEDS]
    for run in RUNS.values():
        for name in script.KEPT:
            assert len(run[name]) == script.STEPS
            assert run[f"last_{name}"] == pytest.approx(sum(run[name][-script.LAST :]) / script.LAST, abs=1e-3)
    assert (RECORD["steps"], RECORD["completions_a_step"], RECORD["first"]) == (40, 256, script.FIRST)
    assert {"torch", "transformers", "rlhf_minimal", "python"} <= set(RECORD["versions"])


def test_the_grids_are_equally_long_and_arms_differ_in_their_coefficient_alone():
    assert len(script.COEFFICIENTS) == len(script.TARGETS) == 5
    rows = {arm: script.begin(arm, 0, steps=1)[1] for arm in ("none", "fixed-0.03", "target-0.5")}
    assert rows["none"].algorithm.kl == ()
    assert [rows[arm].algorithm.kl[0].coef for arm in ("fixed-0.03", "target-0.5")] == [0.03, script.FIRST]
    for arm, recipe in rows.items():
        assert (recipe.config.kl_control == "adaptive") == arm.startswith("target")
        assert recipe.config.prompts * recipe.config.group_size == script.COMPLETIONS


@pytest.mark.parametrize("arm", ["fixed-0.1", "target-0.5"])
def test_the_first_steps_are_still_those(arm):
    learner, recipe = script.begin(arm, 0, steps=2)
    history = train(learner, recipe)
    for step, one in enumerate(history):
        for name in script.KEPT:
            assert one[name] == pytest.approx(RUNS[arm, 0][name][step], abs=2e-3), name


def test_a_fixed_coefficient_stays_and_an_adapted_one_moves_by_a_fifth_at_most():
    for (arm, _), run in RUNS.items():
        coefficients = torch.tensor(run["kl_coef"])
        if arm.startswith("fixed"):
            assert coefficients.unique().tolist() == pytest.approx([float(arm.split("-")[1])])
        elif arm.startswith("target"):
            assert coefficients[0] == pytest.approx(script.FIRST)
            change = (coefficients[1:] / coefficients[:-1] - 1).abs()
            assert 0.1 < change.max() < 0.21


def test_the_best_of_the_grids_are_not_separated_and_their_means_are():
    assert not separated(last(best("target")), last(best("fixed")))
    assert best("target") == "target-1", "at the edge of its grid"
    assert best("fixed") in ("fixed-0.03", "fixed-0.1"), "inside of its grid"
    means = {
        kind: torch.stack([last(arm) for arm in script.ARMS if arm.startswith(kind)]).mean(0)
        for kind in ("fixed", "target")
    }
    assert means["target"].mean() < means["fixed"].mean()
    assert separated(means["target"], means["fixed"])
    assert separated(last("none"), last(best("fixed")))


def test_at_a_like_distance_the_fixed_arm_is_right_more_often():
    apart = last("target-0.5", "kl_sequence") - last("fixed-0.3", "kl_sequence")
    assert apart.mean().abs() < 0.2
    assert separated(last("target-0.5"), last("fixed-0.3"))
