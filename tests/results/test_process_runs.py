"""The recorded runs on payments for steps: whole, still what the code begins to do, and as their text says."""

import math

import pytest
import torch

from rlhf_minimal.functional.advantages import place_rewards
from rlhf_minimal.tasks import Problem
from rlhf_minimal.train import roll_out
from tests.results.scripts import load, separated

script, RECORD = load("process_runs")
RUNS = {(run["arm"], run["seed"]): run for run in RECORD["runs"]}
PROBLEM = Problem("3+8+5+" + "." * 26 + ":", "q")
TEXTS = ["3d8l5q=q", "3d8c5h=q", "=q", "3d8l5q.q.q=q", "3d8l", "3d8l5q.q.a.a=b", ""]


def last(arm, name):
    return torch.tensor([RUNS[arm, seed][f"last_{name}"] for seed in script.SEEDS])


def test_every_arm_has_every_seed_and_every_step():
    assert list(RUNS) == [(arm, seed) for arm in script.ARMS for seed in script.SEEDS]
    for run in RUNS.values():
        for name in script.CURVES:
            assert len(run[name]) == script.STEPS
            numbers = [x for x in run[name] if x is not None]
            assert all(map(math.isfinite, numbers))
            tail = [x for x in run[name][-script.LAST :] if x is not None]
            if tail:
                assert run[f"last_{name}"] == pytest.approx(sum(tail) / len(tail), abs=1e-3)
    assert RECORD["steps"] == script.STEPS
    assert {"torch", "transformers", "rlhf_minimal", "python"} <= set(RECORD["versions"])


def test_what_an_aggregate_pays():
    many = {"completions": TEXTS, "problem": [PROBLEM] * len(TEXTS)}
    assert script.checked("sum")(**many) == [4, 3, 1, 6, 2, 5, 0]
    assert script.checked("mean")(**many) == pytest.approx([1, 3 / 4, 1, 1, 2 / 3, 5 / 7, 0])


@pytest.mark.parametrize("arm", ["refunded", "value"])
def test_a_potential_pays_nothing_in_all(arm):
    """Marks and the outcome's reward sum to the outcome, less the potential of the prompt, whatever is written."""
    plan = script.recipe(arm, 0, 1)
    given = {"prompts": [PROBLEM.prompt] * len(TEXTS), "completions": TEXTS, "problem": [PROBLEM] * len(TEXTS)}
    marks = [sum(step.mark for step in steps) for steps in plan.step_reward(**given)]
    start = 0 if arm == "refunded" else 0.75**3 * 25 / 26 + 1 / 26
    for text, paid, outcome in zip(TEXTS, marks, plan.reward(**given), strict=True):
        assert paid + outcome == pytest.approx(script.TASK.verify(text, PROBLEM) - start)


def test_worth_is_the_chance_of_a_right_answer():
    assert script.worth("3d8l5q=q", PROBLEM)[-1] == pytest.approx(1)
    assert script.worth("3d8c5h=q", PROBLEM)[2:] == pytest.approx([1 / 26, 1 / 26])
    chances = script.worth("3d8l5q.q", PROBLEM)
    assert chances == sorted(chances)
    assert chances[-1] == chances[-2]  # an idle move changes nothing


def test_arms_of_a_group_differ_in_the_reward_alone():
    plans = {arm: script.recipe(arm, 0) for arm in ("verifier", "checker-mean", "checker-sum")}
    assert len({(id(plan.algorithm), plan.config) for plan in plans.values()}) == 1
    assert all(plan.step_reward is None for plan in plans.values())
    plans = {arm: script.recipe(arm, 0) for arm in ("alone", "refunded", "value")}
    assert len({(id(plan.algorithm), plan.config) for plan in plans.values()}) == 1


def test_what_is_paid_is_what_the_loop_places():
    """The marks of moves lie on their last tokens, the rest of the reward on the completion's last one."""
    plan = script.recipe("refunded", 0, 1)
    written = roll_out(*script.prm_runs.start(), [PROBLEM] * 8, plan, seed="placed")
    whole = (written.step_marks + place_rewards(written.rewards, written.mask)).sum(1)
    torch.testing.assert_close(whole, written.correct.to(whole.dtype), atol=1e-5, rtol=0)


@pytest.mark.parametrize("arm", ["verifier", "checker-sum", "alone", "refunded", "value"])
def test_the_first_steps_come_out_as_recorded(arm):
    found, recorded = script.run(arm, 0, 2), RUNS[arm, 0]
    for step in range(2):
        assert found["accuracy"][step] == pytest.approx(recorded["accuracy"][step], abs=0.08)
        assert found["length"][step] == pytest.approx(recorded["length"][step], abs=2)


def test_a_weak_scorer_is_paid_in_idle_moves():
    """Its reward rises, right answers do not; the same mean of a program's marks is the control."""
    for seed in script.SEEDS:
        run = RUNS["scalar-mean", seed]
        assert run["last_score"] > sum(run["score"][:10]) / 10 + 0.05
    assert last("scalar-mean", "accuracy").max() < 0.3
    assert last("scalar-mean", "idle").min() > 5
    assert 1 < last("checker-mean", "idle").min()
    assert last("checker-mean", "idle").max() < 4
    assert separated(last("scalar-mean", "accuracy"), last("checker-mean", "accuracy"))
    assert separated(last("checker-mean", "idle"), last("scalar-mean", "idle"))
    assert separated(last("checker-mean", "accuracy"), last("verifier", "accuracy"))


def test_a_potential_far_from_the_value_drowns_the_outcome_and_the_value_does_not():
    assert last("refunded", "accuracy").max() < 0.1
    assert last("refunded", "idle").max() < 3
    assert separated(last("refunded", "accuracy"), last("alone", "accuracy"))
    assert not separated(last("value", "accuracy"), last("alone", "accuracy"))
    assert min(last("value", "accuracy").min(), last("alone", "accuracy").min()) > 0.59


def test_a_sum_pays_for_idle_moves_until_no_answer_is_left():
    assert last("checker-sum", "accuracy").max() < 0.02
    assert last("checker-sum", "idle").min() > 10
    assert last("checker-sum", "score").min() > 19
    assert last("verifier", "idle").max() < 0.3
    assert separated(last("verifier", "accuracy"), last("checker-sum", "accuracy"))
    bounds = {"verifier": (0.575, 0.665), "checker-mean": (0.495, 0.555), "alone": (0.595, 0.685)}
    for arm, (low, high) in (bounds | {"value": (0.6, 0.685), "refunded": (0.035, 0.075)}).items():
        assert low < last(arm, "accuracy").min()
        assert last(arm, "accuracy").max() < high
