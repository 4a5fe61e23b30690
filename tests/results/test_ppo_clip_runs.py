"""The recorded runs behind the chapter on PPO's clip: whole, and still what the code of today begins to do."""

import math

import pytest
import torch

from rlhf_minimal.train import train
from tests.results.scripts import load

script, RECORD = load("ppo_clip_runs")
RUNS = {(run["arm"], run["seed"]): run for run in RECORD["runs"]}


def test_every_arm_has_every_seed_and_every_step():
    assert list(RUNS) == [(arm, seed) for arm in script.ARMS for seed in script.SEEDS]
    for (arm, _), run in RUNS.items():
        assert all(len(run[name]) == script.STEPS for name in script.KEPT)
        _, epochs, minibatches = script.WAYS[script.ARMS[arm][0]]
        for name in ("outside", "drift"):
            assert len(run[name]) == epochs * minibatches
            assert all(map(math.isfinite, run[name]))
    assert (RECORD["steps"], RECORD["samples_per_step"]) == (script.STEPS, script.SAMPLES)
    assert {"torch", "transformers", "rlhf_minimal", "python"} <= set(RECORD["versions"])


def test_arms_see_the_same_number_of_samples_and_differ_as_their_names_say():
    for arm in script.ARMS:
        way, rate = script.ARMS[arm]
        _, what, _ = script.begin(arm, 0, steps=1)
        config = what.config
        assert config.prompts * config.group_size == script.SAMPLES
        assert arm == f"{way}-{config.lr:g}"
        assert config.lr == rate
        updates = config.epochs * config.minibatches
        assert updates == (1 if way == "once" else 16)
        assert config.epochs == (1 if way in ("once", "split") else 4)


def test_the_ways_that_are_compared_have_one_grid():
    for way in ("once", "split", "reuse", "free"):
        assert [rate for rate in script.RATES[way] if rate < 5e-3] == list(script.GRID)


def test_one_update_is_on_policy_and_the_control_clips_nothing():
    for (arm, _), run in RUNS.items():
        if arm.startswith("once"):
            assert max(run["ratio_max"]) < 1.001
            assert run["drift"] == pytest.approx([0.0], abs=1e-5)
        if arm.startswith(("once", "free")):
            assert set(run["clip_fraction"]) == {0.0}


def test_the_drift_is_the_kl_of_the_snapshot():
    """w - 1 - log w, averaged over tokens of the old policy, is KL(old || new); the gate looks at real tokens only."""
    generator = torch.Generator().manual_seed(0)
    old, new = torch.randn(2, 4, generator=generator, dtype=torch.float64).log_softmax(-1)
    drawn = torch.multinomial(old.exp(), 100_000, True, generator=generator)
    drift = script.Drift(script.CLIPPED.gate)
    w = torch.cat([(new - old)[drawn].exp(), torch.full((9,), 1e6)])[None].requires_grad_() * 1
    advantage = torch.cat([torch.ones(len(drawn)), torch.zeros(9)])[None].double()
    drift(w, advantage)
    assert drift.kl[0] == pytest.approx((old.exp() * (old - new)).sum().item(), rel=0.02)
    outside = ((new - old).exp() - 1).abs() > 0.2
    assert drift.outside[0] == pytest.approx(old.exp()[outside].sum().item(), abs=0.01)


@pytest.mark.parametrize("arm", script.ARMS)
def test_the_first_steps_come_out_as_recorded(arm):
    """Another machine may round differently and draw a few other tokens: the tolerance is a dozen answers of 256."""
    steps = 2 if script.ARMS[arm][0] in ("once", "split") else 1
    learner, what, drift = script.begin(arm, 0, steps=steps)
    history = train(learner, what)
    recorded = RUNS[arm, 0]
    for step in range(steps):
        assert history[step]["reward"] == pytest.approx(recorded["reward"][step], abs=0.05)
        assert history[step]["entropy"] == pytest.approx(recorded["entropy"][step], abs=0.03)
        assert history[step]["clip_fraction"] == pytest.approx(recorded["clip_fraction"][step], abs=0.02)
    if script.ARMS[arm][0] != "once":
        assert drift.kl[1] > 0
        assert max(drift.outside) > 0
