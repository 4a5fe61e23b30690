"""An evaluation asks distinct problems, and its intervals hold what they promise when problems are few."""

import dataclasses
import random

import pytest
import torch

from rlhf_minimal import ALGORITHMS
from rlhf_minimal.cli import main
from rlhf_minimal.cli.starts import ASSETS, untrained
from rlhf_minimal.config import Config
from rlhf_minimal.evaluate import DRAWS, Accuracy, MeanScore, _mean_score, evaluate, t_quantile, wilson
from rlhf_minimal.tasks import TASKS, Problem, get_task
from rlhf_minimal.train import Recipe
from rlhf_minimal.training import load_policy

REPEATS = 400


def shares(mean, strength, problems, draws, generator):
    """[P, K] verdicts: a problem's own share is drawn around the mean, the closer the stronger."""
    gammas = [torch._standard_gamma(torch.full((problems,), strength * x), generator) for x in (mean, 1 - mean)]
    own = gammas[0] / (gammas[0] + gammas[1])
    return torch.bernoulli(own[:, None].expand(-1, draws), generator=generator)


@pytest.mark.parametrize(
    ("mean", "strength", "problems", "draws"),
    [
        (0.5, 2.0, 10, 10),
        (0.3, 0.5, 10, 10),
        (0.8, 4.0, 30, 5),
        (0.5, 1e6, 10, 10),
        (0.7, 1.0, 100, 10),
        (0.5, 1, 60, 1),
    ],
)
def test_an_interval_of_a_share_covers_the_truth(mean, strength, problems, draws):
    generator = torch.Generator().manual_seed(0)
    found = [Accuracy.of(shares(mean, strength, problems, draws, generator)) for _ in range(REPEATS)]
    covered = sum(low <= mean <= high for low, high in (one.interval for one in found)) / REPEATS
    assert covered > 0.917  # 0.95 less three standard errors of this simulation
    naive = sum(low <= mean <= high for low, high in (wilson(one.right, one.n) for one in found)) / REPEATS
    if draws > 1 and strength < 10:
        assert naive < 0.9  # what was printed before: every completion a problem of its own


@pytest.mark.parametrize(("problems", "draws"), [(2, 5), (10, 10), (40, 1)])
def test_an_interval_of_a_mean_score_covers_the_truth(problems, draws):
    generator = torch.Generator().manual_seed(0)
    covered = 0
    for _ in range(REPEATS):
        own = torch.randn(problems, 1, generator=generator)
        low, high = _mean_score(own + 2 * torch.randn(problems, draws, generator=generator)).interval
        covered += low <= 0 <= high
    assert 0.917 < covered / REPEATS < 0.983


def test_one_completion_of_each_problem_is_worth_one():
    for right in (0, 3, 40):
        correct = torch.tensor([1.0] * right + [0.0] * (40 - right))[:, None]
        assert Accuracy.of(correct).interval == wilson(right, 40)
        assert Accuracy.of(correct).worth == pytest.approx(40)


def test_ten_problems_that_are_all_right_are_ten_problems():
    assert Accuracy.of(torch.ones(10, 100)).interval == wilson(10, 10)
    assert Accuracy.of(torch.zeros(10, 100)).interval == wilson(0, 10)
    assert Accuracy.of(torch.tensor([[1.0, 0.0, 0.0, 0.0]])).interval == wilson(0.25, 1)


def test_equal_shares_are_worth_no_more_than_all_completions():
    assert Accuracy.of(torch.tensor([[1.0, 0.0]] * 20)).worth <= 40


def test_student_against_printed_tables():
    printed = {1: 12.706, 5: 2.571, 9: 2.262, 10: 2.228, 20: 2.086, 60: 2.000, 120: 1.980, 10**6: 1.960}
    for degrees, quantile in printed.items():
        assert t_quantile(degrees) == pytest.approx(quantile, rel=2e-3)


def test_a_mean_of_one_problem_has_no_interval():
    score = MeanScore(1.0, 0.0, 1)
    assert (score.as_json()["low"], score.as_json()["high"]) == (None, None)
    assert str(score) == "1.00 [-inf, inf]"


@pytest.mark.parametrize("name", [*TASKS, "stack"])
def test_held_out_problems_are_drawn_without_replacement(name):
    task = get_task(name)
    found = task.problems("held_out", 1000, seed=3, distinct=True)
    families = {task.family(problem.prompt) for problem in found}
    assert len(families) == len(found)
    assert found == task.problems("held_out", 1000, seed=3, distinct=True)
    seen = {task.family(problem.prompt) for problem in task.problems("held_out", 20_000, seed=4)}
    if len(seen) < 1000:
        assert families == seen  # all there are


def test_a_draw_without_replacement_is_the_draw_without_its_repeats():
    again = get_task("addition").problems("held_out", 300, seed=0)
    once = get_task("addition").problems("held_out", 200, seed=0, distinct=True)
    families = list(dict.fromkeys(get_task("addition").family(p.prompt) for p in again))
    assert [get_task("addition").family(p.prompt) for p in once] == families[:200]


def few(n):
    """A task of some ten times n problems."""

    def make(rng: random.Random) -> Problem:
        return Problem(f"{rng.randrange(10 * n):03}:", "0")

    return dataclasses.replace(get_task("even"), name="few", make=make)


def test_an_evaluation_costs_no_more_completions_than_problems_were_asked_for():
    task = few(8)
    policy, vocabulary = untrained(task, 0)
    recipe = Recipe(ALGORITHMS["reinforce"], task, Config())
    there = len(task.problems("held_out", 10**4, seed=0, distinct=True))
    assert 2 <= there < 20
    for n, draws in ((there - 1, 1), (there, 1), (3 * there + 1, 3), (1000, DRAWS)):
        found = evaluate(policy, vocabulary, recipe, n=n, batch_size=7)
        problems = min(n, there)
        assert (found.sampled.n, found.greedy.n, found.draws) == (problems * draws, problems, draws)
        assert len(set(found.greedy_samples.problems)) == found.sampled.problems == problems
        firsts = found.samples.problems[::draws]
        assert firsts == found.greedy_samples.problems
        assert found.as_json()["sampled"]["problems"] == problems
        assert found.about.startswith(f"{problems} distinct problems")


def test_greedy_completions_of_the_reviews_have_the_interval_of_ten_problems():
    """Before, the same ten numbers were reported with the interval of a thousand, a twelfth as wide."""
    found = evaluate(*load_policy(ASSETS / "reviews"), Recipe(ALGORITHMS["ppo"], get_task("reviews")))
    _, greedy = found.scores
    assert greedy.n == 10
    low, high = greedy.interval
    assert (greedy.mean, high - greedy.mean) == pytest.approx((-1.25, 2.12), abs=0.01)


def test_the_number_of_distinct_problems_is_printed_and_stored(tmp_path, capsys):
    tiny = ["--steps", "1", "--prompts", "4", "--group-size", "4", "--out", str(tmp_path / "run")]
    assert main(["train", "ppo", "--task", "reviews", *tiny]) == 0
    said = "10 distinct problems, 10 completions sampled of each, 95 % interval"
    assert said in capsys.readouterr().out
    assert main(["evaluate", str(tmp_path / "run")]) == 0
    assert said in capsys.readouterr().out
