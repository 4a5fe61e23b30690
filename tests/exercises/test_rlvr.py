"""What is peculiar to the exercises on verifiable rewards: their solutions against the library and against draws."""

import random
from functools import partial

import pytest
import torch

from rlhf_book.exercises import BUGS, EXERCISES
from rlhf_book.exercises.rlvr.audit import my_rates
from rlhf_book.exercises.rlvr.length_pay import my_length_pay
from rlhf_book.exercises.rlvr.noisy_step import my_step_factor
from rlhf_book.exercises.rlvr.spot_check import my_tests_needed
from rlhf_minimal.lab.stack import SHOWN, outputs, run_program
from rlhf_minimal.tasks import get_task

IDS = ["rlvr-audit", "rlvr-noisy-step", "rlvr-length-pay", "rlvr-spot-check"]


def test_they_stand_in_the_order_of_the_chapter_and_its_depth():
    assert [name for name in EXERCISES if name.startswith("rlvr-")] == IDS
    assert "rlvr-lenient-tests" in BUGS


@pytest.mark.parametrize(("p", "a", "b"), [(0.1, 0.2, 0.05), (0.6, 0.05, 0.4)])
def test_an_audit_finds_the_rates_that_made_the_verdicts(p, a, b):
    n = 100_000
    passed = round(n * (p * (1 - b) + (1 - p) * a))
    wrong_passed, right_failed = n * (1 - p) * a / passed, n * p * b / (n - passed)
    assert my_rates(passed, n - passed, wrong_passed, right_failed) == pytest.approx((a, b))


def test_noise_takes_a_larger_part_of_the_z_scores_step_on_a_hard_prompt():
    kept = {
        (p, divide): my_step_factor(p, 0.2, 0.2, 8, divide) / my_step_factor(p, 0.0, 0.0, 8, divide)
        for p in (0.05, 0.5)
        for divide in (False, True)
    }
    assert kept[0.05, False] == pytest.approx(0.6)
    assert kept[0.5, False] == pytest.approx(0.6)
    assert kept[0.05, True] < kept[0.5, True] - 0.05


def test_a_verifier_that_errs_half_of_the_time_teaches_nothing():
    assert my_step_factor(0.3, 0.7, 0.3, 4, True) == pytest.approx(0, abs=1e-12)
    assert my_step_factor(0.3, 0.7, 0.5, 4, True) < 0


def test_within_prompts_length_may_pay_where_it_does_not_over_the_batch():
    lengths = torch.tensor([4.0, 8, 5, 9, 20, 24, 21, 30])
    rewards = torch.tensor([1.0, 1, 0, 1, 0, 0, 0, 1])
    assert my_length_pay(lengths, rewards, 4) > 0 > my_length_pay(lengths, rewards, 8)


def test_drawn_tests_are_enough_and_one_less_is_not():
    rng = random.Random(0)
    needed = my_tests_needed(20, 15, 0.1)
    through = {k: sum(max(rng.sample(range(20), k)) < 15 for _ in range(20_000)) / 20_000 for k in (needed - 1, needed)}
    assert through[needed] < 0.11 < through[needed - 1]


def test_the_verifier_that_is_mended_is_the_tasks():
    mended, task = BUGS["rlvr-lenient-tests"].mended, get_task("stack:tests=visible")
    rng = random.Random(1)
    for problem in task.problems("train", 30, seed=0):
        tests = dict(zip(SHOWN, outputs(problem.answer, SHOWN), strict=True))
        for program in (problem.answer, task.teacher(problem, rng), "+", problem.answer[:-1]):
            assert mended(partial(run_program, program), tests) == task.verify(program, problem)
