"""The recorded runs behind the chapter on KL divergence: whole, and still what the code of today begins to do."""

import math
from dataclasses import replace

import pytest
import torch

from rlhf_minimal.train import collect
from tests.results.scripts import load

script, RECORD = load("kl_runs")
RUNS = {(run["arm"], run["seed"]): run for run in RECORD["runs"]}


def test_every_arm_has_every_seed_and_every_step():
    assert list(RUNS) == [(arm, seed) for arm in script.ARMS for seed in script.SEEDS]
    for run in RUNS.values():
        for name in script.KEPT:
            assert len(run[name]) == script.STEPS
            assert all(map(math.isfinite, run[name]))
    assert (RECORD["steps"], RECORD["samples_per_step"]) == (script.STEPS, script.PROMPTS * script.GROUP)
    assert (RECORD["lr"], RECORD["noise"]) == (script.LR, script.NOISE)
    assert {"torch", "transformers", "rlhf_minimal", "python"} <= set(RECORD["versions"])


def test_arms_differ_in_the_kl_cell_alone():
    rows = {arm: script.algorithm(arm) for arm in script.ARMS}
    assert len({replace(row, kl=()) for row in rows.values()}) == 1
    for arm, row in rows.items():
        if arm.endswith("-none"):
            assert row.kl == ()
        else:
            (term,) = row.kl
            assert arm.endswith(f"{term.estimator}-{term.place}-{term.coef:g}")


def test_the_situations_pay_what_they_say():
    verified = torch.tensor([1.0, 0.0, 1.0, 0.0]).repeat(64)
    assert script.rewards_of("learn", verified, 0, 1) is verified
    assert not script.rewards_of("back", verified, 0, 1).any()
    coin = script.rewards_of("coin", verified, 0, 1)
    assert set(coin.tolist()) == {0.0, 1.0}
    assert abs((coin * (2 * verified - 1)).mean()) < 0.1  # knows nothing of who is right
    assert torch.equal(coin, script.rewards_of("coin", verified, 0, 1))
    assert not torch.equal(coin, script.rewards_of("coin", verified, 0, 2))


def test_all_begin_at_the_reference_but_those_that_shall_come_back():
    for (arm, _), run in RUNS.items():
        assert (run["kl"][0] > 0.5) == arm.startswith("back")


def test_the_distance_is_the_divergence():
    """Over many samples the exact next-token divergences agree with the mean log-ratio of the completions."""
    learner, recipe = script.begin("back-none", 0)
    recipe = replace(recipe, config=replace(recipe.config, prompts=384))
    groups, _ = collect(learner.policy, learner.vocabulary, recipe, 1)
    at_start = script.policy_logits(learner.start, groups.prompts, groups.prompt_mask, groups.completions)
    ref = at_start.log_softmax(-1).gather(-1, groups.completions[..., None])[..., 0]
    log_ratio = torch.where(groups.mask != 0, groups.logp - ref, 0.0).sum(1)
    error = log_ratio.std().item() / len(log_ratio) ** 0.5
    assert script.distance(learner, groups) == pytest.approx(log_ratio.mean().item(), abs=5 * error)
    assert error < 0.1


@pytest.mark.parametrize("arm", script.ARMS)
def test_the_first_steps_come_out_as_recorded(arm):
    """Another machine may round differently and draw a few other tokens: the tolerance is six answers of 128."""
    _, _, seen = script.train(arm, 0, 2)
    recorded = RUNS[arm, 0]
    for step in range(2):
        assert seen["reward"][step] == pytest.approx(recorded["reward"][step], abs=0.05)
        assert seen["kl"][step] == pytest.approx(recorded["kl"][step], rel=0.15, abs=0.03)
    assert seen["grad_norm"][0] == pytest.approx(recorded["grad_norm"][0], rel=0.05, abs=1e-6)
