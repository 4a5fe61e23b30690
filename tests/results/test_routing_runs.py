"""The recorded runs of a mixture of experts beside a dense model: whole, and measured as they say."""

import pytest
import torch

from rlhf_book.loop import encode, token_mask
from tests.results.scripts import load

script, RECORD = load("routing_runs")
RUNS = {(run["arm"], run["seed"]): run for run in RECORD["runs"]}
IDS, COMPLETIONS = encode(["123+456=", "999+001="]), encode(["9750$", "0001$"])


def test_every_arm_has_every_seed_and_every_setting():
    assert list(RUNS) == [(arm, seed) for arm in script.ARMS for seed in range(5)]
    settings = [(lr, updates) for lr in script.RATES for updates in script.UPDATES]
    for run in RUNS.values():
        assert [(line["lr"], line["updates"]) for line in run["found"]] == settings
    stuck = [key for key, run in RUNS.items() if run["imitation_loss"] > 0.13]
    assert stuck == [("dense", 4)]  # the chapter says so
    assert {"torch", "transformers", "rlhf_minimal", "python"} <= set(RECORD["versions"])


def test_arms_differ_in_the_feed_forward_blocks_alone():
    shapes = [
        {name: value.shape for name, value in script.new_model(arm, 0).state_dict().items() if ".mlp." not in name}
        for arm in script.ARMS
    ]
    assert shapes[0] == shapes[1]


def test_what_has_not_moved_has_no_flips_and_no_spread():
    model = script.new_model("experts", 0)
    logp, picked = script.read(model, IDS, COMPLETIONS)
    again, now = script.read(model, IDS, COMPLETIONS)
    assert len(picked) == 2
    assert script.flips(picked, now, torch.ones(len(picked[0]), dtype=torch.bool)) == 0
    assert set(script.spreads(again - logp, token_mask(COMPLETIONS)).values()) == {0.0}
    with script.replaying(model, picked):
        replayed, _ = script.read(model, IDS, COMPLETIONS)
    torch.testing.assert_close(replayed, logp)


def test_other_experts_are_other_log_probs_and_are_counted():
    model = script.new_model("experts", 0)
    logp, picked = script.read(model, IDS, COMPLETIONS)
    others = [(experts + 1) % script.EXPERTS for experts in picked]
    with script.replaying(model, others):
        moved, _ = script.read(model, IDS, COMPLETIONS)
    assert (moved - logp).abs().max() > 0.01
    before = [torch.tensor([[0, 1], [2, 3], [4, 5]])]
    after = [torch.tensor([[1, 0], [3, 9], [8, 9]])]  # the same two, one of two, none
    assert script.flips(before, after, torch.tensor([True, True, True])) == pytest.approx(0.5)
    assert script.flips(before, after, torch.tensor([True, True, False])) == pytest.approx(0.25)


def test_a_dense_model_has_no_flips():
    _, picked = script.read(script.new_model("dense", 0), IDS, COMPLETIONS)
    assert picked == []
    assert all(line["flips"] == 0 for seed in range(5) for line in RUNS["dense", seed]["found"])


def test_spreads_by_hand():
    found = script.spreads(torch.tensor([[0.1, -0.3, 9.0], [0.2, 0.0, 0.1]]), torch.tensor([[1.0, 1, 0], [1, 1, 1]]))
    assert found["most"] == pytest.approx(0.3)
    assert found["most_s"] == pytest.approx(0.1)
    assert found["mean"] == pytest.approx(0.2 / 2**0.5, abs=1e-6)  # of -0.1 and 0.1
    assert found["token"] == pytest.approx(torch.tensor([0.1, -0.3, 0.2, 0.0, 0.1]).std().item(), abs=1e-6)


@pytest.mark.parametrize("arm", script.ARMS)
def test_the_first_steps_come_out_as_recorded(arm):
    loss = script.imitate(script.new_model(arm, 0), steps=3, seed=0) * 50 / 3
    assert loss == pytest.approx(RUNS[arm, 0]["first_loss"], abs=0.02)
