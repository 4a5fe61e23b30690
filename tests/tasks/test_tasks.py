"""Tasks: the split into training and held-out problems, honest verifiers, and one calling form for rewards."""

import dataclasses
import itertools
import math
import random

import pytest

from rlhf_minimal.tasks import TASKS, Problem, Task, get_task, random_reward, score_all, verifier_reward
from rlhf_minimal.tasks.addition import add
from rlhf_minimal.tasks.base import DRAWS

EVEN = get_task("even")
NAMES = [*TASKS, "stack"]


@pytest.mark.parametrize("name", NAMES)
def test_train_and_held_out_problems_are_disjoint(name):
    task = get_task(name)
    train = {task.family(p.prompt) for p in task.problems("train", 5_000, seed=0)}
    held_out = {task.family(p.prompt) for p in task.problems("held_out", 1_000, seed=0)}
    assert not train & held_out
    assert all(task.is_held_out(prompt) == task.is_held_out(task.family(prompt)) for prompt in held_out)


def test_swapping_the_summands_never_changes_the_split():
    task = get_task("addition2")  # small enough to look at every problem
    held_out = 0
    for a, b in itertools.product(range(100), repeat=2):
        one, two = f"{a:02d}+{b:02d}=", f"{b:02d}+{a:02d}="
        assert task.is_held_out(one) == task.is_held_out(two)
        held_out += task.is_held_out(one)
    assert 800 < held_out < 1200  # about one in ten


@pytest.mark.parametrize("name", NAMES)
def test_problems_are_a_function_of_the_seed(name):
    task = get_task(name)
    assert task.problems("train", 50, seed=1) == task.problems("train", 50, seed=1)
    assert task.problems("train", 50, seed=1) != task.problems("train", 50, seed=2)


@pytest.mark.parametrize("name", NAMES)
def test_everything_a_task_writes_fits_its_alphabet_and_budget(name):
    task, rng = get_task(name), random.Random(0)
    for problem in task.problems("train", 200, seed=0):
        assert set(problem.prompt) <= set(task.alphabet)
        if task.teacher is not None:
            answers = {task.teacher(problem, rng), problem.answer}
            assert all(set(answer) <= set(task.alphabet) for answer in answers)
            # a fifth of the budget stays free, so that no length penalty touches a right answer
            assert all(len(answer) + 1 <= 0.8 * task.max_new_tokens for answer in answers)


@pytest.mark.parametrize(("name", "digits"), [("addition", 3), ("addition2", 2)])
def test_addition_accepts_the_sum_and_nothing_else(name, digits):
    task = get_task(name)
    for problem in task.problems("held_out", 200, seed=0):
        a, b = (int(x) for x in problem.prompt.rstrip("=").split("+"))
        truth = "".join(reversed(str(a + b).zfill(digits + 1)))
        assert task.verify(truth, problem) == 1
        for wrong in (truth[::-1] + "0", truth + "0", truth[:-1], "", "+" + truth[1:]):
            assert task.verify(wrong, problem) == 0


def test_the_teacher_is_wrong_in_one_way_only():
    task, rng = get_task("addition"), random.Random(0)
    problems = task.problems("train", 4000, seed=0)
    right = without_carry = 0
    for problem in problems:
        answer = task.teacher(problem, rng)
        columns = [(int(problem.prompt[2 - i]) + int(problem.prompt[6 - i])) for i in range(3)]
        dropped = "".join(str(c % 10) for c in columns) + "0"
        assert answer in (problem.answer, dropped)
        right += answer == problem.answer
        without_carry += problem.answer == dropped
    assert without_carry / 4000 == pytest.approx(0.55**3, abs=0.02)  # two digits sum below ten in 55 of 100 pairs
    assert right / 4000 == pytest.approx(0.2 + 0.8 * 0.55**3, abs=0.025)


def test_add_by_hand():
    assert add(999, 1, 3) == "0001"
    assert add(999, 1, 3, carry=False) == "0990"
    assert add(0, 0, 2) == "000"


def test_unknown_names_are_answered_with_the_known_ones():
    for name in ("addition3", "reasoning-gym", "exact", "sum:FILE", ""):
        with pytest.raises(ValueError) as caught:
            get_task(name)
        assert str(caught.value).startswith(f"unknown task {name!r}; choose one of addition, ")
        assert str(caught.value).endswith("qa:FILE.jsonl, exact:FILE.jsonl, math:FILE.jsonl")


@pytest.mark.parametrize("split", ["train", "held_out"])
def test_a_task_of_one_prompt_has_one_side_and_says_so(split):
    prompt = next(str(i) for i in range(100) if EVEN.is_held_out(str(i)) == (split == "train"))
    task = dataclasses.replace(EVEN, make=lambda rng: Problem(prompt, ""))
    with pytest.raises(
        ValueError, match=f"even has no {split} problem in 2000 draws: it has too few different prompts"
    ):
        task.problems(split, 3, seed=0)


def test_rare_problems_are_waited_for():
    drawn = 0

    def make(rng):
        nonlocal drawn
        drawn += 1
        return Problem(held_out if drawn % DRAWS == 0 else training, "")

    training, held_out = (
        next(str(i) for i in range(100) if EVEN.is_held_out(str(i)) == side) for side in (False, True)
    )
    assert [p.prompt for p in dataclasses.replace(EVEN, make=make).problems("held_out", 3, seed=0)] == [held_out] * 3
    assert drawn == 3 * DRAWS


PROBLEMS = [Problem("1:", "2"), Problem("3:", "4")]


def test_a_reward_function_written_for_trl_works_unchanged():
    def reward_len(completions, **kwargs):
        return [float(len(completion)) for completion in completions]

    def reward_answer(prompts, completions, answer, **kwargs):
        assert prompts == ["1:", "3:"]
        return [float(c == a) for c, a in zip(completions, answer, strict=True)]

    assert score_all(reward_len, PROBLEMS, ["a", "bcd"], step=1).values == [1.0, 3.0]
    assert score_all(reward_answer, PROBLEMS, ["2", "2"], step=1).values == [1.0, 0.0]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "got None"),
        ([1.0], "got 1 numbers"),
        ([1.0, None], "'b'"),
        ([math.nan, 0.0], "nan"),
        ([0, math.inf], "inf"),
    ],
)
def test_a_reward_function_that_does_not_score_everything_is_an_error(returned, message):
    with pytest.raises(ValueError, match=message):
        score_all(lambda **columns: returned, PROBLEMS, ["a", "b"], step=1)


def test_random_rewards_ignore_the_answer_and_repeat_by_step():
    coin = random_reward(seed=1)
    first = score_all(coin, PROBLEMS * 500, ["right"] * 1000, step=3).values
    assert first == score_all(random_reward(seed=1), PROBLEMS * 500, ["wrong"] * 1000, step=3).values
    assert first != score_all(coin, PROBLEMS * 500, ["right"] * 1000, step=4).values
    assert sum(first) / 1000 == pytest.approx(0.5, abs=0.08)


def test_the_verifier_as_a_reward_function():
    task = get_task("even")
    assert score_all(verifier_reward(task), PROBLEMS, ["4", "5"], step=0).values == [1.0, 0.0]


def test_a_task_of_ones_own_is_a_few_lines():
    vowels = Task(
        name="vowels",
        about="answer with a vowel",
        alphabet="abcdefghi:",
        max_new_tokens=2,
        make=lambda rng: Problem("".join(rng.choices("abcdefghi", k=5)) + ":", answer="a, e or i"),
        verify=lambda completion, problem: float(completion in ("a", "e", "i")),
    )
    from rlhf_minimal import ALGORITHMS
    from rlhf_minimal.config import Config
    from rlhf_minimal.models import Vocabulary, tiny_llama
    from rlhf_minimal.train import Recipe, train
    from rlhf_minimal.train_state import Learner

    vocabulary = Vocabulary(vowels.alphabet)
    recipe = Recipe(ALGORITHMS["dr_grpo"], vowels, Config(steps=2, prompts=4, group_size=4))
    learner = Learner.begin(tiny_llama(len(vocabulary), width=16, heads=2), vocabulary, recipe.algorithm, recipe.config)
    assert len(train(learner, recipe)) == 2
