"""The recorded runs behind the chapter on test-time scaling: whole, still what the code of today draws, and as told."""

import string

import pytest
import torch

from rlhf_book import sampling
from rlhf_minimal.evaluate import pass_at
from rlhf_minimal.lab.votes import vote
from rlhf_minimal.train import train
from rlhf_minimal.train_state import Learner
from tests.results.scripts import load

script, RECORD = load("sampling_runs")
RUNS = {(run["arm"], run["seed"]): run for run in RECORD["runs"]}
START = sampling.completions_of(RUNS["start", 0])


def test_every_arm_has_its_seeds():
    wanted = [(arm, seed) for arm in script.ARMS for seed in list(script.SEEDS)[: script.FEWER.get(arm)]]
    assert list(RUNS) == wanted
    assert {"torch", "transformers", "rlhf_minimal", "python"} <= set(RECORD["versions"])
    asked = script.problems()
    assert RECORD["answers"] == "".join(problem.answer for problem in asked)
    assert RECORD["moves"] == [problem.prompt.count("+") for problem in asked]
    assert len({problem.prompt for problem in asked}) == script.PROBLEMS


def test_the_first_completions_come_out_as_recorded():
    """Another machine may round differently and draw a few other tokens."""
    first = next(iter(script.write(*script.start(), script.MANY, "start/0")))
    found = script.table([first], script.MANY)
    recorded = RUNS["start", 0]
    for name in ("answers", "lengths"):
        same = [a == b for x, y in zip(found[name], recorded[name], strict=False) for a, b in zip(x, y, strict=True)]
        assert len(same) == 25 * script.MANY
        assert sum(same) / len(same) > 0.95


def test_the_trained_policies_begin_as_in_the_record_of_the_clock():
    """They are the runs of the arm "growth" there: the same row, numbers and seeds."""
    _, clock = load("clock_runs")
    growth = next(run for run in clock["runs"] if (run["arm"], run["seed"]) == ("growth", 0))
    plan = script.replace(script.SAMPLING, config=script.replace(script.LOOP, seed=0, steps=2))
    learner = Learner.begin(*script.start(), script.ROW, plan.config)
    found = [step["accuracy"] for step in train(learner, plan)]
    assert found == pytest.approx(growth["accuracy"][:2], abs=0.02)


def test_a_letter_says_answer_and_work():
    problem = script.Problem("3+8+....:", "l")
    assert [script.letter(text, problem) for text in ("3d8l=l", "3d=l", "=l", "3d8m=m", "3d8l", "3d8l.l=l")] == list(
        "Lllm.L"
    )
    assert bool((START.sound <= START.right).all())


def test_scores_keep_two_digits():
    known = {"seconds": 0, "x": ["".join(script.packed(v) for v in (-50.0, -0.126, 0.0, 3.14, 39.0))]}
    assert sampling.scores_of(known, "x").tolist() == [pytest.approx([-39, -0.13, 0, 3.14, 39])]


def test_the_estimators_are_the_librarys_and_enumeration_s():
    K, letters = START.right.shape[1], string.ascii_lowercase
    counts = START.right.sum(1)
    for n in (1, 5, 128):
        assert sampling.pass_at(n, counts, K).tolist() == pytest.approx([pass_at(n, int(c), K) for c in counts])
    whole = sampling.voted(K, START.answers)
    for i in (0, 44, 77, 199):
        answers = [None if a < 0 else letters[a] for a in START.answers[i].tolist()]
        assert whole[i].item() == pytest.approx(vote(answers, START.right[i].tolist(), [1.0] * K)[0])
    scores = torch.tensor([[1.0, 3.0, 3.0, 0.0]])
    right = torch.tensor([[True, False, True, False]])
    found = []
    for pair in torch.combinations(torch.arange(4)):
        own, marks = scores[0, pair], right[0, pair].double()
        found.append(marks[own == own.max()].mean().item())
    assert sampling.best_of(2, scores, right).item() == pytest.approx(sum(found) / len(found))


@pytest.mark.parametrize("seed", range(3))
def test_best_of_n_rises_and_falls_for_every_scorer(seed):
    scores = sampling.scores_of(RUNS["outcome", seed], "sum")
    curve = [sampling.best_of(n, scores, START.right).mean().item() for n in sampling.sizes(128)]
    assert max(curve) > curve[0] + 0.2
    assert curve[-1] < max(curve) - 0.1
    weighted = sampling.voted(128, START.answers, scores.sigmoid()).mean().item()
    assert weighted > max(curve)


def test_an_answer_held_back_does_without_training_what_training_does():
    forced = RUNS["forced", 0]["greedy"]
    shares = [sum(sampling.numbers(one["right"])) / script.HALF for one in forced]
    assert shares[0] < 0.2
    assert shares[1] > 0.95
    trained = [sampling.completions_of(RUNS["trained", seed]) for seed in script.SEEDS]
    assert all(0.7 < table.right.double().mean() < shares[1] for table in trained)
    assert abs(forced[1]["tokens"] - sum(table.cost for table in trained) / 5) < 1
