"""A verifier that raises, hangs or returns nonsense costs its completion, and nothing else."""

import dataclasses
import math
import re
import signal
import sys
import threading
import time
import warnings

import numpy as np
import pytest
import torch

from rlhf_minimal import ALGORITHMS
from rlhf_minimal.config import Config
from rlhf_minimal.evaluate import evaluate
from rlhf_minimal.lab.sampled_rows import sample_pairs
from rlhf_minimal.metrics import NONDETERMINISTIC
from rlhf_minimal.models import Vocabulary, tiny_llama
from rlhf_minimal.tasks import Problem, VerifierWarning, get_task, score_all, verify_all
from rlhf_minimal.tasks.scoring import LARGEST
from rlhf_minimal.timeouts import call_with_timeout
from rlhf_minimal.train import Recipe, train
from rlhf_minimal.train_state import Learner

PROBLEMS = [Problem("1:", "2"), Problem("3:", "4"), Problem("5:", "6")]
ANSWERS = ["2", "bad", "6"]


def recurse(n):
    return recurse(n + 1)


def spin():
    while True:
        pass


def swallow():
    try:
        time.sleep(60)
    except BaseException:  # ours among them
        time.sleep(60)


def match_for_ever():
    return re.match(r"(a+)+b", "a" * 60)


WRONG = {
    "raises": lambda: 1 / 0,
    "recurses": lambda: recurse(0),
    "exits": sys.exit,
    "none": lambda: None,
    "text": lambda: "right",
    "nan": lambda: math.nan,
    "infinite": lambda: -math.inf,
    "no float32": lambda: 1e39,
    "no float": lambda: 10**400,
    "too many digits": lambda: int("9" * 5000),
    "two numbers": lambda: torch.ones(2),
}
HANGING = {"spins": spin, "sleeps": lambda: time.sleep(60), "matches": match_for_ever, "swallows": swallow}


def task_with(wrong):
    return dataclasses.replace(
        get_task("even"), verify=lambda answer, problem: wrong() if answer == "bad" else float(answer == problem.answer)
    )


@pytest.mark.parametrize("name", WRONG)
def test_a_verifier_that_fails_costs_its_completion_alone(name):
    with pytest.warns(VerifierWarning, match="its completion gets 0: .*prompt '3:', completion 'bad'"):
        scored = verify_all(task_with(WRONG[name]), PROBLEMS, ANSWERS)
    assert scored.values == [1.0, 0.0, 1.0]
    assert list(scored.faults) == [1]


@pytest.mark.parametrize("name", HANGING)
def test_a_verifier_that_hangs_is_cut_off(name):
    began = time.monotonic()
    with pytest.warns(VerifierWarning, match="TimeoutError: it took longer than 0.1 seconds"):
        scored = verify_all(task_with(HANGING[name]), PROBLEMS, ANSWERS, seconds=0.1)
    assert scored.values == [1.0, 0.0, 1.0]
    assert time.monotonic() - began < 10
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL


def test_a_reward_function_for_all_is_asked_one_by_one_where_it_fails():
    calls = []

    def reward(completions, **columns):
        calls.append(len(completions))
        if "bad" in completions:
            raise RuntimeError("no\nsuch answer")
        return [float(len(c)) for c in completions]

    with pytest.warns(VerifierWarning, match="RuntimeError: no such answer"):
        scored = score_all(reward, PROBLEMS, ANSWERS, step=1)
    assert scored.values == [1.0, 0.0, 1.0]
    assert calls == [3, 1, 1, 1]
    calls.clear()
    assert score_all(reward, PROBLEMS, ["a", "bb", "ccc"], step=1).values == [1.0, 2.0, 3.0]
    assert calls == [3]  # and once for all where it does not


def test_one_by_one_a_hanging_reward_function_loses_one_completion():
    def reward(completions, **columns):
        if "bad" in completions:
            time.sleep(60)
        return [1.0] * len(completions)

    with pytest.warns(VerifierWarning, match="0.05 seconds"):
        assert score_all(reward, PROBLEMS, ANSWERS, step=1, seconds=0.05).values == [1.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "got None"),
        ([1.0], "got 1 numbers"),
        ([1.0, math.nan, 0.0], "got nan in row 2, for the prompt '3:' and the completion 'bad'"),
        ([1.0, 0.0, None], "got None in row 3"),
        ([1e39, 0.0, 0.0], "in row 1"),
        ([1.0, "good", 0.0], "got good in row 2"),
    ],
)
def test_scores_that_are_none_are_no_completions_fault(returned, message):
    with pytest.raises(ValueError, match=message):
        score_all(lambda **columns: returned, PROBLEMS, ANSWERS, step=1)


@pytest.mark.parametrize(
    ("returned", "got"),
    [
        (lambda n: (1.0 for _ in range(n)), "a generator"),
        (lambda n: dict.fromkeys(range(n), 1.0), "a dict"),
        (lambda n: {float(row) for row in range(n)}, "a set"),
        (lambda n: "123"[:n], "a str"),
        (lambda n: b"123"[:n], "a bytes"),
        (lambda n: map(float, range(n)), "a map"),
        (lambda n: 1.0, "a float"),
        (lambda n: torch.tensor(1.0), "a Tensor"),
        (lambda n: [1.0] * (n + 1), "4 numbers"),
        (lambda n: [], "0 numbers"),
    ],
)
def test_a_reward_function_returns_one_number_a_completion_in_order(returned, got):
    with pytest.raises(ValueError) as caught:
        score_all(lambda completions, **columns: returned(len(completions)), PROBLEMS, ANSWERS, step=7)
    assert str(caught.value) == f"a reward function must return one number per completion, 3 in a list; got {got}"


@pytest.mark.parametrize("made", [list, tuple, torch.tensor, np.array, lambda x: torch.tensor(x)[:, None]])
def test_lists_tuples_arrays_and_tensors_are_sequences(made):
    assert score_all(lambda **columns: made([1.0, 2.0, 3.0]), PROBLEMS, ANSWERS, step=1).values == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("reward", [math.inf, -math.inf, math.nan, 3e38, 1e19, -1e16])
def test_a_reward_that_no_batch_could_be_averaged_with_is_refused(reward):
    with pytest.raises(ValueError, match=r"a finite number, at most 1e\+15 in size; got .* in row 1"):
        score_all(lambda **columns: [reward] * 3, PROBLEMS, ANSWERS, step=1)
    with pytest.warns(VerifierWarning, match="at most 1e"):
        assert verify_all(task_with(lambda: reward), PROBLEMS, ANSWERS).values == [1.0, 0.0, 1.0]


def test_the_largest_rewards_have_a_mean_and_a_deviation_in_single_precision():
    rewards = torch.tensor([LARGEST, -LARGEST] * 100_000)
    assert rewards.mean().isfinite()
    assert rewards.std().isfinite()
    assert rewards.square().sum().isfinite()


def test_a_reward_function_that_fails_on_everything_stops_the_run_at_once():
    def for_another_library(prompts, answers):
        return [1.0] * len(prompts)

    with pytest.raises(ValueError, match="fails on all 3 completions of the first step, .*: TypeError: .*keyword arg"):
        score_all(for_another_library, PROBLEMS, ANSWERS, step=1)
    with pytest.warns(VerifierWarning):  # later it may be the completions
        assert score_all(for_another_library, PROBLEMS, ANSWERS, step=2).values == [0.0, 0.0, 0.0]
    broken = dataclasses.replace(get_task("even"), verify=lambda answer: 1.0)
    with pytest.raises(ValueError, match="the verifier of even fails on all 3 completions .*: TypeError"):
        verify_all(broken, PROBLEMS, ANSWERS, step=1)
    for step in (None, 2):
        with pytest.warns(VerifierWarning):
            assert verify_all(broken, PROBLEMS, ANSWERS, step=step).values == [0.0, 0.0, 0.0]
    learner, recipe = begin(get_task("even"))
    before = [weight.clone() for weight in learner.policy.parameters()]
    with pytest.raises(ValueError, match="the reward function fails on all 16 completions of the first step"):
        train(learner, dataclasses.replace(recipe, reward=for_another_library))
    assert learner.step == 0
    assert all(torch.equal(a, b) for a, b in zip(before, learner.policy.parameters(), strict=True))


def slow(answer, problem):
    time.sleep(60 if answer == "hangs" else 0.06 if answer == "slow" else 0)
    return 1.0


@pytest.mark.parametrize("score", ["verifier", "reward function"])
def test_completions_that_run_out_of_time_do_so_together(score):
    """A thousand that hang cost as much as six, and one warning."""
    problems, completions = [Problem("1:", "2")] * 1000, ["good"] + ["hangs"] * 999
    task = dataclasses.replace(get_task("even"), verify=slow)

    def reward(completions, **columns):
        assert len(completions) == 1, "as a function that fails on some would do"
        return [slow(text, None) for text in completions]

    by = {
        "verifier": lambda: verify_all(task, problems, completions, seconds=0.1),
        "reward function": lambda: score_all(reward, problems, completions, step=1, seconds=0.1),
    }
    began = time.monotonic()
    with pytest.warns(VerifierWarning) as told:
        scored = by[score]()
    assert time.monotonic() - began < 5
    assert scored.values == [1.0] + [0.0] * 999
    assert scored.faults[1] == "TimeoutError: it took longer than 0.1 seconds"
    assert (
        scored.faults[999] == "TimeoutError: not scored: earlier completions have used up the time for all completions"
    )
    assert len(scored.faults) == 999
    assert len(told) == 1


def test_slow_completions_have_a_limit_together_too():
    problems, completions = [Problem("1:", "2")] * 100, ["slow"] * 100
    task = dataclasses.replace(get_task("even"), verify=slow)
    with pytest.warns(VerifierWarning, match="used up the time for all completions"):
        scored = verify_all(task, problems, completions, seconds=0.1)  # 6 s of work, and 1.6 s are theirs
    assert 5 < sum(scored.values) < 60
    assert sum(verify_all(task, problems, completions, seconds=1.0).values) == 100


def test_a_reward_that_is_slow_and_nowhere_wrong_is_paid():
    """The call for all ends early, since somebody might hang; alone, each completion has the time that is its own."""

    def judge(prompts, completions, **columns):
        time.sleep(0.05 * len(completions))
        return [1.0] * len(completions)

    n = 50  # the call for all may take 11 limits and would take 12.5
    scored = score_all(judge, [Problem("1:", "2")] * n, ["2"] * n, step=1, seconds=0.2)
    assert (scored.values, scored.faults) == ([1.0] * n, {})


def test_one_that_hangs_among_many_is_found_within_the_time_of_all():
    """Asked for all at once, 512 completions of 0.05 seconds each would otherwise wait for 26 seconds."""
    problems, completions = [Problem("1:", "2")] * 512, ["good"] * 100 + ["hangs"] + ["good"] * 411

    def reward(completions, **columns):
        return [slow(text, None) for text in completions]

    began = time.monotonic()
    with pytest.warns(VerifierWarning, match="it took longer than 0.05 seconds"):
        scored = score_all(reward, problems, completions, step=1, seconds=0.05)
    assert time.monotonic() - began < 10
    assert scored.values == [1.0] * 100 + [0.0] + [1.0] * 411


@pytest.mark.parametrize("score", ["verifier", "reward function"])
def test_an_error_of_that_name_that_came_at_once_takes_no_time_from_the_others(score):
    problems, completions = [Problem("1:", "2")] * 40, ["no server", "good"] * 20

    def verify(answer, problem):
        if answer == "no server":
            raise TimeoutError("the server does not answer")
        return 1.0

    def reward(completions, **columns):
        return [verify(text, None) for text in completions]

    task = dataclasses.replace(get_task("even"), verify=verify)
    by = {
        "verifier": lambda: verify_all(task, problems, completions),
        "reward function": lambda: score_all(reward, problems, completions, step=1),
    }
    with pytest.warns(VerifierWarning, match="the server does not answer"):
        scored = by[score]()
    assert scored.values == [0.0, 1.0] * 20


def test_what_was_verified_before_a_failure_is_not_verified_again():
    asked = []

    def verify(answer, problem):
        asked.append(answer)
        return 1 / (answer != "bad")

    with pytest.warns(VerifierWarning, match="ZeroDivisionError"):
        scored = verify_all(dataclasses.replace(get_task("even"), verify=verify), PROBLEMS, ANSWERS)
    assert scored.values == [1.0, 0.0, 1.0]
    assert asked == ANSWERS


def test_ctrl_c_comes_through():
    def interrupted(**columns):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score_all(interrupted, PROBLEMS, ANSWERS, step=1)
    with pytest.raises(KeyboardInterrupt):
        verify_all(task_with(interrupted), PROBLEMS, ANSWERS)


def test_somebody_elses_alarm_still_rings():
    rung = []
    handler = signal.signal(signal.SIGALRM, lambda *_: rung.append(time.monotonic()))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        assert call_with_timeout(lambda: 3, 0.2) == 3
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 0.5
        with pytest.raises(TimeoutError):
            call_with_timeout(lambda: time.sleep(60), 0.1)
        assert rung == []
        time.sleep(0.6)
        assert len(rung) == 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)


def test_off_the_main_thread_the_call_is_left_behind():
    found = []

    def work():
        with warnings.catch_warnings(action="ignore"):
            found.append(verify_all(task_with(lambda: time.sleep(5)), PROBLEMS, ANSWERS, seconds=0.1))
            found.append(verify_all(task_with(lambda: 1 / 0), PROBLEMS, ANSWERS, seconds=1.0))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(4)
    assert [scored.values for scored in found] == [[1.0, 0.0, 1.0]] * 2
    assert [next(iter(scored.faults.values()))[:12] for scored in found] == ["TimeoutError", "ZeroDivision"]


def test_a_call_that_was_left_behind_adds_no_score():
    found = []

    def work():
        with warnings.catch_warnings(action="ignore"):
            found.append(verify_all(task_with(lambda: time.sleep(0.3)), PROBLEMS, ANSWERS, seconds=0.1))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(4)
    time.sleep(0.5)  # by now the calls that were left behind have come to their end
    assert found[0].values == [1.0, 0.0, 1.0]
    assert list(found[0].faults) == [1]


# --- in a run --------------------------------------------------------------------------------------------------------


def begin(task, **options):
    config = Config(steps=2, prompts=4, group_size=4, **options)
    vocabulary = Vocabulary(task.alphabet)
    policy = tiny_llama(len(vocabulary), width=16, layers=1, heads=2)
    return Learner.begin(policy, vocabulary, ALGORITHMS["grpo"], config), Recipe(ALGORITHMS["grpo"], task, config)


def test_the_run_goes_on_and_counts():
    def picky(answer, problem):
        if answer[:1] in tuple("13579"):
            raise ValueError("odd")
        return get_task("even").verify(answer, problem)

    history = []
    for verify in (get_task("even").verify, picky):
        learner, recipe = begin(dataclasses.replace(get_task("even"), verify=verify))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            history.append(train(learner, recipe))
    assert [type(one.message) for one in caught] == [VerifierWarning] * 2  # one a rollout
    sound, broken = history
    assert all(0 < row["verifier_errors"] <= 16 for row in broken)
    assert not any("verifier_errors" in row for row in sound)
    for one, other in zip(sound, broken, strict=True):  # 0 was what an odd digit gets anyway: all else is the same
        assert {k: v for k, v in one.items() if k not in NONDETERMINISTIC} == {
            k: v for k, v in other.items() if k not in (*NONDETERMINISTIC, "verifier_errors")
        }


def test_a_hanging_verifier_does_not_stop_a_run_or_an_evaluation():
    def hangs_at_a_0(answer, problem):
        return time.sleep(60) if answer[:1] == "0" else get_task("even").verify(answer, problem)

    learner, recipe = begin(dataclasses.replace(get_task("even"), verify=hangs_at_a_0), verifier_timeout=0.02)
    began = time.monotonic()
    with pytest.warns(VerifierWarning, match="0.02 seconds"):
        history = train(learner, recipe)
    with pytest.warns(VerifierWarning, match="0.02 seconds"):
        evaluate(learner.policy, learner.vocabulary, recipe, n=20)
    assert sum(row.get("verifier_errors", 0) for row in history) > 0
    assert time.monotonic() - began < 20


def test_pairs_are_made_of_answers_that_could_be_scored():
    def picky(answer, problem):
        if answer[:1] == "0":
            raise ValueError("no zeros")
        return float(len(answer))

    task = dataclasses.replace(get_task("even"), verify=picky)
    learner, _ = begin(task)
    with pytest.warns(VerifierWarning, match="no zeros"):
        pairs = sample_pairs(learner.policy, learner.vocabulary, task, 40)
    assert len(pairs) == 40
    assert not any(text.startswith("0") for pair in pairs for text in (pair.chosen, pair.rejected))
