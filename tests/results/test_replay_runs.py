"""The recorded runs of the chapter on mixtures of experts: whole, and still what the code of today begins to do."""

import math

import pytest
import torch

from rlhf_book.loop import encode, token_mask
from tests.results.scripts import load

script, RECORD = load("replay_runs")
RUNS = {(run["arm"], run["seed"]): run for run in RECORD["runs"]}
IDS, COMPLETIONS = encode(["123+456=", "999+001="]), encode(["9750$", "0001$"])


def test_every_arm_has_every_seed_and_every_step():
    assert list(RUNS) == [(arm, seed) for arm in script.ARMS for seed in script.SEEDS]
    for (arm, _), run in RUNS.items():
        if arm in script.PROBES:
            assert [line["lr"] for line in run["found"]] == list(script.RATES)
            assert [line["length"] for line in run["smaller"]] == [0.5**n for n in range(script.SHORTER)]
            continue
        for name in script.KEPT:
            assert len(run[name]) == script.STEPS
            assert all(map(math.isfinite, run[name]))
    assert (RECORD["steps"], RECORD["lr"], RECORD["balance"]) == (script.STEPS, script.LR, script.BALANCE)
    assert {"torch", "transformers", "rlhf_minimal", "python"} <= set(RECORD["versions"])


def test_the_full_length_is_the_update_itself():
    for arm in script.PROBES:
        for seed in script.SEEDS:
            line, whole = RUNS[arm, seed]["found"][-1], RUNS[arm, seed]["smaller"][0]
            assert line["all"] == pytest.approx(whole["all"], rel=1e-3)


def test_arms_of_one_model_begin_alike():
    for seed in script.SEEDS:
        for kind in ("experts", "dense"):
            same = [run["reward"][0] for (arm, s), run in RUNS.items() if arm.startswith(f"{kind}-") and s == seed]
            assert len(set(same)) <= 1


def test_a_dense_model_has_no_flips():
    for (arm, _), run in RUNS.items():
        if arm.startswith("dense-"):
            assert set(run["flips"]) == {0.0}


def test_only_the_choice_is_replayed():
    """With the same picks nothing changes; other picks are weighed by today's logits, which get a gradient."""
    model = script.new_model("experts", 0)
    logp, picked = script.read(model, IDS, COMPLETIONS)
    with script.replaying(model, picked):
        torch.testing.assert_close(script.read(model, IDS, COMPLETIONS)[0], logp)
    others = [(S + 1) % 16 for S in picked]
    with script.replaying(model, others):
        moved = script.log_probs(model, IDS, COMPLETIONS)
        moved.sum().backward()
    assert (moved - logp).abs().max() > 0.01
    gates = [layer.mlp.gate for layer in model.model.layers]
    assert len(gates) == 2
    assert min(gate.weight.grad.norm() for gate in gates) > 1e-3


def test_use_by_hand():
    picked = [torch.tensor([[0, 1], [0, 1], [2, 3]])]
    assert script.used(picked, torch.tensor([True, True, False])) == pytest.approx(2)
    assert script.used(picked, torch.tensor([True, False, True])) == pytest.approx(4)
    assert script.changed(picked, [torch.tensor([[1, 0], [0, 2], [2, 3]])]).tolist() == [[False, True, False]]


def test_positions_predict_the_tokens_that_count():
    mask = token_mask(encode(["97$11"]))
    assert script.positions(encode(["123+456="]), mask).nonzero().flatten().tolist() == [7, 8, 9]


@pytest.mark.parametrize("arm", script.TRAINED)
def test_the_first_steps_come_out_as_recorded(arm):
    """From an untrained model; another machine may draw a few other tokens."""
    seen, recorded = script.first_steps(arm, 0), RUNS[arm, 0]["first"]
    for name in ("spread", "flips", "experts_used"):
        assert seen[name] == pytest.approx(recorded[name], rel=0.15, abs=0.02)
