"""The recorded runs behind the chapter on DAPO: whole, equal in samples, and still what today's code begins to do."""

import dataclasses
import math
from importlib.resources import files

import pytest
import torch

from rlhf_minimal import ALGORITHMS, Algorithm
from rlhf_minimal.functional.logprobs import token_entropy
from rlhf_minimal.models import policy_logits
from rlhf_minimal.train import collect
from rlhf_minimal.training import load_policy
from tests.results.scripts import load

script, RECORD = load("dapo_runs")
RUNS = {(run["arm"], run["seed"]): run for run in RECORD["runs"]}

# An arm, the one that it is compared with, and the cells in which they may differ.
ONE_CELL = {
    ("no-higher", "dapo"): {"gate"},
    ("no-filter", "dapo"): {"keep"},
    ("no-token", "dapo"): {"aggregate"},
    ("no-overlong", "dapo"): {"shape"},
    ("prompt", "dapo"): {"aggregate"},
    ("coin", "dapo"): set(),
    ("higher", "none"): {"gate"},
    ("bonus", "none"): {"entropy"},
    ("high", "none"): {"trust"},
    ("once", "none"): set(),
}


def cells(arm):
    row = script.ARMS[arm].algorithm
    return {field.name: repr(getattr(row, field.name)) for field in dataclasses.fields(Algorithm)}


def test_every_arm_has_every_seed_and_every_step():
    assert list(RUNS) == [(arm, seed) for arm in script.ARMS for seed in script.SEEDS]
    for run in RUNS.values():
        for name in ("samples", "surprisal", *script.KEPT):
            assert len(run[name]) == run["updates"]
        assert all(map(math.isfinite, run["surprisal"]))
    assert {"torch", "transformers", "rlhf_minimal", "python"} <= set(RECORD["versions"])
    numbers = {name: RECORD[name] for name in ("prompts", "group_size", "epochs", "minibatches", "lr")}
    assert numbers == {name: getattr(script.CONFIG, name) for name in numbers}
    assert (RECORD["samples"], RECORD["budget"]) == (script.SAMPLES, script.CONFIG.max_new_tokens)


def test_dropped_groups_are_paid_for():
    rounds = script.CONFIG.prompts * script.CONFIG.group_size
    for (arm, _), run in RUNS.items():
        steps = [b - a for a, b in zip([0, *run["samples"]], run["samples"], strict=False)]
        assert all(step % rounds == 0 for step in steps)
        if script.ARMS[arm].algorithm.keep is None:
            assert set(steps) == {rounds}
        assert run["samples"][-1] == run["spent"] >= script.SAMPLES
        assert run["spent"] - steps[-1] < script.SAMPLES  # it ended with the first step that reached it
    assert any(run["updates"] * rounds < run["spent"] for (arm, _), run in RUNS.items() if arm == "dapo")


def test_arms_differ_in_what_is_named():
    for (arm, other), names in ONE_CELL.items():
        if arm not in script.ARMS:
            continue
        first, second = cells(arm), cells(other)
        assert {name for name in first if first[name] != second[name]} == names
        configs = script.ARMS[arm].config, script.ARMS[other].config
        assert (configs[0] == configs[1]) == (arm != "once")
        assert script.ARMS[arm].coin == (arm == "coin")
    assert script.ARMS["dapo"].algorithm == ALGORITHMS["dapo"]


def test_a_seed_gives_all_arms_the_same_first_samples():
    """Before the first update no arm has changed anything, so equal seeds sample alike."""
    for seed in script.SEEDS:
        first = {}
        for arm in script.ARMS:
            run = RUNS[arm, seed]
            first.setdefault(run["samples"][0], []).append((run["surprisal"][0], run["accuracy"][0], run["length"][0]))
        assert all(len(set(values)) == 1 for values in first.values())
        assert len(first[script.CONFIG.prompts * script.CONFIG.group_size]) >= 5  # the arms without a filter


def test_the_surprisal_is_an_estimate_of_the_entropy():
    """On a rollout of the start: against the entropy that the logits have at each sampled token's place."""
    policy, vocabulary = load_policy(files("rlhf_minimal") / "assets" / "clock")
    plan = script.recipe("none", 0)
    rollout, _ = collect(
        policy, vocabulary, dataclasses.replace(plan, config=dataclasses.replace(plan.config, prompts=64)), 1
    )
    with torch.no_grad():
        entropy = token_entropy(policy_logits(policy, rollout.prompts, rollout.prompt_mask, rollout.completions))
    exact = ((entropy * rollout.mask).sum() / rollout.mask.sum()).item()
    assert exact > 0.3
    assert script.surprisal(rollout) == pytest.approx(exact, abs=0.05)


@pytest.mark.parametrize("arm", script.ARMS)
def test_the_first_steps_come_out_as_recorded(arm):
    """Another machine may round differently and draw a few other tokens."""
    recorded = RUNS[arm, 0]
    _, seen = script.learn(arm, 0, recorded["samples"][1])
    assert seen["samples"] == recorded["samples"][:2]
    for name, near in {"accuracy": 0.05, "surprisal": 0.05, "length": 0.6}.items():
        assert seen[name] == pytest.approx(recorded[name][:2], abs=near)
