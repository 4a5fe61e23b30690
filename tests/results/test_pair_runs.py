"""The recorded runs behind the chapter on reward models: whole, and still what the code of today begins to do."""

import math

import pytest
import torch

from tests.results.scripts import load

script, RECORD = load("pair_runs")
RUNS = {(run["arm"], run["seed"]): run for run in RECORD["runs"]}
PAIR_ARMS = ("dpo", "coin", "online")


def test_every_arm_has_every_seed_and_every_step():
    assert list(RUNS) == [(arm, seed) for arm in script.ARMS for seed in script.SEEDS]
    steps = {"loss": script.REWARD_STEPS, "reward": script.RL_STEPS}
    for (arm, _), run in RUNS.items():
        for name in ("loss", "chosen", "rejected"):
            if arm in PAIR_ARMS:
                assert len(run[f"{name}_by_step"]) == script.STEPS
        lists = {name: values for name, values in run.items() if isinstance(values, list)}
        if arm.endswith("rl"):
            assert all(len(values) == steps[name.removesuffix("_by_step")] for name, values in lists.items())
            assert len(lists) == (2 if arm == "reward-rl" else 1)
        assert all(math.isfinite(x) for values in lists.values() for x in values)
    assert (RECORD["pairs"], RECORD["rounds"], RECORD["beta"]) == (script.PAIRS, script.ROUNDS, script.BETA)
    assert {"torch", "transformers", "rlhf_minimal", "python"} <= set(RECORD["versions"])


def test_on_pairs_of_the_start_both_sides_together_fall():
    """Half their sum estimates minus the KL divergence of the start from the policy, for whatever policy."""
    for run in RUNS.values():
        assert run["chosen"] + run["rejected"] < 0
        assert run["chosen"] > run["rejected"] or run["arm"] == "coin"


def test_the_coin_knows_nothing_of_who_is_right():
    rows = script.pairs_of_start(0)[:600]
    tossed = script.tossed(rows, 0)
    turned = [one.chosen != other.chosen for one, other in zip(rows, tossed, strict=True)]
    assert 0.4 < sum(turned) / len(turned) < 0.6
    for one, other, turn in zip(rows, tossed, turned, strict=True):
        assert {(one.chosen, one.score_chosen), (one.rejected, one.score_rejected)} == {
            (other.chosen, other.score_chosen),
            (other.rejected, other.score_rejected),
        }
        assert (other.score_chosen == one.score_rejected) or not turn


@pytest.mark.parametrize("arm", PAIR_ARMS)
def test_the_first_steps_come_out_as_recorded(arm):
    """Another machine may round differently and draw a few other tokens."""
    _, seen = script.learn_pairs(arm, 0, steps=3)
    for step in range(3):
        for name in ("loss", "chosen", "rejected"):
            recorded = RUNS[arm, 0][f"{name}_by_step"][step]
            assert seen[step][name] == pytest.approx(recorded, abs=0.05)


def test_the_reward_model_and_rl_begin_as_recorded():
    reward_model, losses = script.learn_reward(0, steps=3)
    assert losses == pytest.approx(RUNS["reward-rl", 0]["loss_by_step"][:3], abs=0.05)
    assert torch.isfinite(reward_model.score(["mia tea?"], ["tea yum yum wow wow"])).all()
    _, history = script.learn_rl(0, None, steps=2)
    recorded = RUNS["gold-rl", 0]["reward_by_step"][:2]
    assert [metrics["reward"] for metrics in history] == pytest.approx(recorded, abs=0.7)
