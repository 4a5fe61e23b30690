"""The recorded runs with a sampler in few bits: whole, one cell apart, and still what begins."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from rlhf_minimal import contrib
from rlhf_minimal.functional import corrections
from tests.results.scripts import load

script, RECORD = load("mismatch_runs")
RUNS = {(run["arm"], run["seed"]): run for run in RECORD["runs"]}


def test_every_arm_has_every_seed_and_every_step():
    assert list(RUNS) == [(arm, seed) for arm in script.ARMS for seed in script.SEEDS]
    assert all(len(run[name]) == script.STEPS == RECORD["steps"] for run in RUNS.values() for name in script.KEPT)
    assert {"torch", "transformers", "rlhf_minimal", "python"} <= set(RECORD["versions"])


def test_ways_differ_in_the_correction_alone():
    ways = {way for _, way in script.ARMS.values()}
    assert {replace(script.WAYS[way], correct=None) for way in ways} == {script.WAYS["blind"]}
    assert script.WAYS["truncated"].correct is corrections.truncated_importance
    assert script.WAYS["masked"].correct is contrib.corrections.masked_importance


def test_a_row_has_so_many_levels_and_keeps_its_largest():
    model = nn.Sequential(nn.Linear(200, 3, bias=True), nn.LayerNorm(3))
    exact = [weight.detach().clone() for weight in model.parameters()]
    for bits in (3, 8):
        found = list(script.rounded(model, bits).parameters())
        for old, new in zip(exact, found, strict=True):
            if old.dim() < 2:
                assert torch.equal(old, new)
                continue
            levels = 2 ** (bits - 1) - 1
            for row, coarse in zip(old, new, strict=True):
                step = row.abs().max() / levels
                assert len(coarse.unique()) <= 2 * levels + 1
                assert (coarse - row).abs().max() <= step / 2 * (1 + 1e-5)
                assert torch.isclose(coarse.abs().max(), row.abs().max())
    assert all(torch.equal(old, new) for old, new in zip(exact, model.parameters(), strict=True))


def test_fewer_bits_are_further_from_the_policy():
    """Every seed, all steps together; the exact sampler is the policy."""
    for seed in script.SEEDS:
        far = [sum(RUNS[arm, seed]["kl"]) for arm in ("exact", "8-blind", "4-blind", "3-blind")]
        assert abs(far[0]) < 1e-3
        assert far[1] < far[2] / 10 < far[3] / 50


@pytest.mark.parametrize("arm", script.ARMS)
def test_the_first_steps_come_out_as_recorded(arm):
    """Another machine may round differently and draw a few other tokens: the tolerance is five completions of 256."""
    _, _, seen = script.train(arm, 0, steps=2)
    recorded = RUNS[arm, 0]
    assert seen["reward"] == pytest.approx(recorded["reward"][:2], abs=0.02)
    assert seen["apart"] == pytest.approx(recorded["apart"][:2], rel=0.1, abs=1e-4)
