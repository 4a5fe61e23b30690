"""The recorded runs of the chapter on agents: whole, still what the code begins to do, and what the text says."""

import pytest

from rlhf_minimal.tasks import Problem
from rlhf_minimal.train import train
from tests.results.scripts import load

script, RECORD = load("agent_runs")
RUNS = {(run["arm"], run["seed"]): run for run in RECORD["runs"]}
PAID = ("free", "cost-1", "cost-3")


def seeds(arm):
    return script.SEEDS[: script.FEWER.get(arm)]


def of(arm, key):
    return [RUNS[arm, seed]["held_out"][key] for seed in seeds(arm)]


def test_every_arm_has_every_seed_and_every_step():
    assert list(RUNS) == [(arm, seed) for arm in script.ARMS for seed in seeds(arm)]
    assert all(len(run[name]) == script.STEPS == RECORD["steps"] for run in RUNS.values() for name in script.KEPT)
    assert {"torch", "transformers", "rlhf_minimal", "python"} <= set(RECORD["versions"])


@pytest.mark.parametrize("arm", script.ARMS)
def test_the_first_steps_come_out_as_recorded(arm):
    """Another machine may round differently and draw a few other tokens: the tolerance is ten transcripts of 256."""
    learner, recipe = script.begin(arm, 0, steps=2)
    seen = []
    train(learner, recipe, on_rollout=lambda step, out: seen.append(script.watch(out)))
    for step in range(2):
        for name in ("right", "used"):
            assert seen[step][name] == pytest.approx(RUNS[arm, 0][name][step], abs=0.04)


def test_a_free_calculator_is_learnt_and_one_at_a_price_is_taken_down():
    assert min(of("free", "used")) > 0.8
    assert max(of("cost-1", "used") + of("cost-3", "used")) < 0.25
    for seed in script.SEEDS:
        used = RUNS["cost-1", seed]["used"]
        assert max(used) > used[0] + 0.05
        assert used[-1] < 0.6 * max(used)
    for arm in PAID:
        assert min(of(arm, "right")) > 0.75 > 0.5 > max(of("coin", "right"))
        assert min(of(arm, "asked")) > 1.7


def test_the_verdict_follows_the_sum_and_its_writer_is_found():
    problem = Problem("a+b:", "11", tuple([4, 7] + [0] * 24))
    assert script.MARKED.replies("?a4?b7=11+", problem) == [(2, 3), (5, 6), (9, 10)]
    texts = ["?a4?b7=11+", "=80:", "+=80:", "=80:+"]
    columns = {"problem": [problem] * 4}
    assert script.by_verdict(texts, **columns) == [1.0, 0.0, 1.0, 1.0]
    assert script.by_replay(texts, **columns) == [1.0, 0.0, 0.0, 0.0]
    assert [script.right_sum(text, problem) for text in texts] == [1.0, 0.0, 0.0, 0.0]
