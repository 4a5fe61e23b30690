"""The recorded runs behind the chapter on GRPO: whole, and still what the code of today begins to do."""

import dataclasses

import pytest
import torch

from rlhf_minimal.tasks import Problem
from rlhf_minimal.train import train
from tests.results.scripts import load

sweeps, RECORD = load("grpo_sweeps")
RUNS = {(run["arm"], run["seed"]): run for run in RECORD["runs"]}


def test_every_arm_has_every_seed_and_every_step():
    assert list(RUNS) == [(arm, seed) for arm in sweeps.ARMS for seed in sweeps.SEEDS]
    for run in RUNS.values():
        assert all(len(run[name]) == sweeps.STEPS for name in (*sweeps.KEPT, "spread"))
    assert (RECORD["steps"], RECORD["samples_per_step"]) == (sweeps.STEPS, sweeps.SAMPLES)
    assert {"torch", "transformers", "rlhf_minimal", "python"} <= set(RECORD["versions"])


def test_an_arm_changes_what_its_name_says_and_samples_as_much():
    for arm in sweeps.ARMS:
        config = sweeps.recipe(arm, 0)[0].config
        assert config.prompts * config.group_size == sweeps.SAMPLES
        assert config.seed == 0
        kind, _, value = arm.partition("-")
        if kind == "group":
            assert config.group_size == int(value)
        if kind == "temperature":
            assert config.temperature == float(value)


@pytest.mark.parametrize("arm", sweeps.ARMS)
def test_the_first_steps_come_out_as_recorded(arm):
    """Another machine may round differently and draw a few other tokens: the tolerance is ten completions of 512."""
    learner, what, spreads = sweeps.begin(arm, 0, steps=2)
    history = train(learner, what)
    recorded = RUNS[arm, 0]
    for step in range(2):
        assert history[step]["reward"] == pytest.approx(recorded["reward"][step], abs=0.02)
        assert history[step]["kl"] == pytest.approx(recorded["kl"][step], abs=0.01)
        assert history[step]["entropy"] == pytest.approx(recorded["entropy"][step], abs=0.02)
        assert spreads[step] == pytest.approx(recorded["spread"][step], abs=0.05)


def test_the_spread_is_that_of_the_groups():
    recipe, spreads = sweeps.recipe("group-2", 0)
    rewards = recipe.reward(
        prompts=["1+1="] * sweeps.SAMPLES,
        completions=["x", "2"] * (sweeps.SAMPLES // 2),
        problem=[Problem("1+1=", "2")] * sweeps.SAMPLES,
        answer=["2"] * sweeps.SAMPLES,
        step=[1] * sweeps.SAMPLES,
    )
    assert rewards == [0.0, 1.0] * (sweeps.SAMPLES // 2)
    assert spreads == pytest.approx([torch.tensor([0.0, 1.0]).std().item()])


@pytest.mark.parametrize(
    ("before", "after", "cell"),
    [
        ("reinforce", "centred-sum", "advantage"),
        ("raw-mean", "centred-mean", "advantage"),
        ("centred-sum", "zscore-sum", "advantage"),
        ("centred-mean", "reference-none", "advantage"),
        ("reinforce", "raw-mean", "aggregate"),
        ("centred-sum", "centred-mean", "aggregate"),
        ("zscore-sum", "reference-none", "aggregate"),
        ("reference-none", "group-16", "kl"),
    ],
)
def test_neighbours_between_reinforce_and_grpo_differ_in_one_cell(before, after, cell):
    """Ratio and clip are not counted: with one update for each batch every ratio is 1, and neither does anything."""
    (one, _), (other, _) = sweeps.ARMS[before], sweeps.ARMS[after]
    names = [field.name for field in dataclasses.fields(one)]
    changed = {name for name in names if getattr(one, name) != getattr(other, name)}
    assert changed - {"ratio", "gate"} == {cell}
    for arm in (before, after):
        config = sweeps.recipe(arm, 0)[0].config
        assert config.epochs * config.minibatches == 1
