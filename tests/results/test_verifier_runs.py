"""The recorded runs on verifiers that err: whole, still what the code begins to do, and as their chapter says."""

import random

import pytest
import torch

from rlhf_minimal.lab.stack import HIDDEN, SHOWN, all_passed
from rlhf_minimal.tasks import Problem, get_task
from rlhf_minimal.train import train
from tests.results.scripts import load, separated

script, RECORD = load("verifier_runs")
RUNS = {(run["arm"], run["seed"]): run for run in RECORD["runs"]}
TASK = get_task("stack")


def last(arm, name):
    return torch.tensor([RUNS[arm, seed][f"last_{name}"] for seed in script.SEEDS])


def programs(n=400):
    rng = random.Random(0)
    problems = TASK.problems("train", n, seed=0)
    return {"completions": [TASK.teacher(p, rng) for p in problems], "problem": problems, "prompts": [""] * n}


def test_every_arm_has_every_seed_and_every_step():
    assert list(RUNS) == [(arm, seed) for arm in script.ARMS for seed in script.SEEDS]
    steps = {"mended": script.LATE + script.STEPS, script.LOOSE: script.clock_runs.GROWTH.steps}
    steps[script.STRICT] = steps[script.LOOSE]
    for (arm, _), run in RUNS.items():
        for name in script.KEPT:
            assert len(run[name]) == steps.get(arm, script.steps_of(arm))
            assert run[f"last_{name}"] == pytest.approx(sum(run[name][-script.LAST :]) / script.LAST, abs=1e-3)
    assert (RECORD["steps"], RECORD["late"], RECORD["accepts"]) == (script.STEPS, script.LATE, script.ACCEPTS)
    assert {"torch", "transformers", "rlhf_minimal", "python"} <= set(RECORD["versions"])


def test_verdicts_are_turned_by_lot_at_their_rates_and_by_nothing_else():
    given = programs()
    exact = [TASK.verify(text, problem) for text, problem in zip(given["completions"], given["problem"], strict=True)]
    for rates, arm in (((0.36, 0.0), "accepts"), ((0.0, 0.36), "rejects"), ((0.36, 0.36), "both")):
        reward, turned = script.rewards(arm, 0), {0.0: [], 1.0: []}
        for step in range(20):
            for right, verdict in zip(exact, reward(**given, step=[step] * 400), strict=True):
                turned[right].append(verdict != right)
        for right, rate in zip((0.0, 1.0), rates, strict=True):
            assert sum(turned[right]) / len(turned[right]) == pytest.approx(rate, abs=0.03)
        assert reward(**given, step=[3] * 400) == reward(**given, step=[3] * 400)


def test_a_fixed_lot_keeps_its_verdict_on_a_text_of_a_problem_and_draws_another_for_another():
    given = programs()
    exact = [TASK.verify(text, problem) for text, problem in zip(given["completions"], given["problem"], strict=True)]
    wrong = [i for i, right in enumerate(exact) if not right]
    some = {name: [x[i] for i in wrong] for name, x in given.items()}
    reward, other = script.rewards(script.FIXED, 0), script.rewards(script.FIXED, 1)
    verdicts = reward(**some, step=[0] * len(wrong))
    assert verdicts == reward(**some, step=[7] * len(wrong)) != other(**some, step=[0] * len(wrong))
    assert sum(verdicts) / len(wrong) == pytest.approx(script.ACCEPTS, abs=0.08)
    one = {name: x[:1] for name, x in some.items()}
    columns = {name: x * len(wrong) for name, x in one.items()} | {"problem": some["problem"]}
    assert len(set(reward(**columns, step=[0] * len(wrong)))) == 2  # one text, other problems
    right = [i for i, ok in enumerate(exact) if ok]
    assert all(reward(**{name: [x[i] for i in right] for name, x in given.items()}))


def test_a_table_passes_what_is_shown_and_hardly_a_spot_check():
    given = programs()
    tables = [i for i, text in enumerate(given["completions"]) if "?" in text]
    assert len(tables) > 80
    some = {name: [x[i] for i in tables] for name, x in given.items()}
    assert sum(script.rewards("visible", 0)(**some)) > 0.9 * len(tables)
    assert sum(script.rewards("spot", 0)(**some, step=[1] * len(tables))) < 0.05 * len(tables)


def test_a_loose_parser_looks_everywhere():
    problem = Problem("3+8+5+" + "." * 26 + ":", "q")
    texts = ["3d8l5q=q", "3d8l5q=a", "=a", "3d8l"]
    assert script.anywhere(completions=texts, problem=[problem] * 4) == [1, 1, 0, 0]


@pytest.mark.parametrize("arm", script.ARMS)
def test_the_first_steps_come_out_as_recorded(arm):
    """Another machine may round differently and draw a few other tokens: the tolerance is ten completions of 256."""
    learner, recipe = script.begin(arm, 0, steps=2)
    history = train(learner, recipe)
    for step in range(2):
        for name in ("reward", "accuracy"):
            assert history[step][name] == pytest.approx(RUNS[arm, 0][name][step], abs=0.04)


def test_the_same_rate_by_lot_and_by_kind_end_apart():
    rates = {}
    for arm in ("visible", "accepts"):
        begun = [(RUNS[arm, seed]["reward"][0], RUNS[arm, seed]["accuracy"][0]) for seed in script.SEEDS]
        rates[arm] = sum((reward - right) / (1 - right) for reward, right in begun) / len(begun)
    assert rates["visible"] == pytest.approx(rates["accepts"], abs=0.03)
    assert last("accepts", "accuracy").min() > 0.94
    assert last("visible", "accuracy").max() < 0.18
    assert last("visible", "reward").min() > 0.92
    assert separated(last("visible", "accuracy"), last("accepts", "accuracy"))
    assert round(100 * last("accepts", "accuracy").mean().item()) == 96
    assert round(100 * last("visible", "accuracy").mean().item()) == 10


def test_one_hidden_test_judged_every_program_as_all_tests_do_so_its_runs_are_theirs():
    for seed in script.SEEDS:
        one, every = RUNS["spot", seed], RUNS["hidden", seed]
        assert all(one[name] == every[name] for name in (*script.KEPT, "tables"))


def test_any_hidden_test_catches_a_table_unless_the_function_is_constant():
    given = programs()
    tables = [(text, p) for text, p in zip(given["completions"], given["problem"], strict=True) if "?" in text]
    passed = [(text, p) for text, p in tables if all_passed(text, p, inputs=SHOWN)]
    assert len(passed) > 80
    for text, problem in passed:
        assert len({all_passed(text, problem, inputs=(*SHOWN, x)) for x in HIDDEN}) == 1


def test_a_late_mend_and_either_error_alone_are_not_separated_from_all_tests():
    for arm in ("mended", "accepts", "rejects", script.FIXED):
        assert not separated(last(arm, "accuracy"), last("hidden", "accuracy"))
    assert separated(last("both", "accuracy"), last("hidden", "accuracy"))
    assert all(RUNS["mended", seed]["accuracy"][script.LATE - 1] < 0.12 for seed in script.SEEDS)


def share(arm, name, step):
    """[seeds] of a step, counted from 1."""
    return torch.tensor([RUNS[arm, seed][name][step - 1] for seed in script.SEEDS])


def test_long_runs_begin_as_the_short_ones():
    for arm in ("visible", "visible_kl"):
        for seed in script.SEEDS:
            for name in (*script.KEPT, "tables"):
                assert RUNS[arm + script.LONGER, seed][name][: script.STEPS] == RUNS[arm, seed][name]


def test_with_a_kl_penalty_right_programs_fall_first_and_come_back_and_without_it_they_do_not_in_40_steps():
    begun = share("visible_kl", "accuracy", 1) / share("visible_kl", "tables", 1)
    fallen = share("visible_kl", "accuracy", 10) / share("visible_kl", "tables", 10)
    assert (fallen < begun / 2).all()
    for arm in script.ROWS:
        rate = torch.tensor([RUNS[arm, seed]["reward"][0] for seed in script.SEEDS])
        assert torch.equal(rate, torch.tensor([RUNS["visible", seed]["reward"][0] for seed in script.SEEDS]))
    assert last("visible_kl", "accuracy").min() > 0.5
    assert max(last(arm, "accuracy").max() for arm in ("visible", "visible_z")) < 0.2
    assert separated(last("visible_kl", "accuracy"), last("visible", "accuracy"))


def test_the_strict_run_is_that_of_the_clock_and_the_loose_rule_would_pass_few_of_its_wrong_ones():
    _, clock = load("clock_runs")
    growth = {run["seed"]: run for run in clock["runs"] if run["arm"] == "growth"}
    wrong = {script.LOOSE: [], script.STRICT: []}
    for seed in script.SEEDS:
        loose, strict = RUNS[script.LOOSE, seed], RUNS[script.STRICT, seed]
        assert strict["accuracy"][:2] == pytest.approx(growth[seed]["accuracy"][:2], abs=0.04)
        wrong[script.LOOSE].append(loose["last_reward"] - loose["last_accuracy"])
        wrong[script.STRICT].append(sum(strict["anywhere"][-script.LAST :]) / script.LAST - strict["last_accuracy"])
    assert separated(torch.tensor(wrong[script.LOOSE]), torch.tensor(wrong[script.STRICT]))
    assert min(wrong[script.LOOSE]) > 0.12 > 0.08 > max(wrong[script.STRICT])
