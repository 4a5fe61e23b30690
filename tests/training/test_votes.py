"""Pass@n and votes: against all subsets, against a count by hand, and from the command line."""

import dataclasses
import itertools
import random
import statistics
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlhf_minimal import ALGORITHMS
from rlhf_minimal.cli import main
from rlhf_minimal.cli.starts import ASSETS
from rlhf_minimal.config import Config
from rlhf_minimal.evaluate import Accuracy, pass_at
from rlhf_minimal.lab.forced_tokens import force
from rlhf_minimal.lab.votes import evaluate_votes, verified_steps, vote
from rlhf_minimal.tasks import get_task
from rlhf_minimal.train import Recipe
from rlhf_minimal.training import load_policy
from tests.commands import fails

CLOCK = get_task("clock10")
RECIPE = Recipe(ALGORITHMS["reinforce"], CLOCK, Config())


@given(st.lists(st.booleans(), min_size=1, max_size=7), st.data())
def test_pass_at_k_is_the_mean_over_all_choices(right, data):
    k = data.draw(st.integers(1, len(right)))
    choices = list(itertools.combinations(right, k))
    assert pass_at(k, sum(right), len(right)) == pytest.approx(sum(map(any, choices)) / len(choices))


@pytest.mark.parametrize(("k", "right", "n"), [(0, 1, 2), (3, 1, 2), (1, 3, 2), (1, -1, 2)])
def test_pass_at_k_of_nothing(k, right, n):
    with pytest.raises(ValueError, match="pass@k needs"):
        pass_at(k, right, n)


@given(st.lists(st.tuples(st.sampled_from("fgh") | st.none(), st.integers(0, 3)), min_size=1, max_size=8))
def test_a_vote_is_drawn_by_lot_where_it_is_tied(ballots):
    """Counted slowly: the mean over the answers with the largest sum, f being right."""
    answers, weights = [answer for answer, _ in ballots], [float(weight) for _, weight in ballots]
    sums = {}
    for answer, weight in ballots:
        if answer is not None:
            sums[answer] = sums.get(answer, 0) + weight
    winners = [answer for answer, total in sums.items() if total == max(sums.values())]
    share, tied = vote(answers, [answer == "f" for answer in answers], weights)
    assert share == (winners.count("f") / len(winners) if winners else 0.0)
    assert tied == (len(winners) > 1)


def test_shares_of_problems_have_the_interval_of_their_completions():
    correct = torch.randint(0, 2, (50, 8), generator=torch.Generator().manual_seed(0)).double()
    one, other = Accuracy.of(correct), Accuracy.of_shares(correct.mean(1), draws=8)
    assert (one.share, *one.interval) == pytest.approx((other.share, *other.interval))


def test_what_is_reported_is_what_the_samples_say():
    policy, vocabulary = load_policy(ASSETS / "clock10")
    votes = evaluate_votes(policy, vocabulary, RECIPE, samples=6, n=30, batch_size=50, scorer=verified_steps(CLOCK))
    assert list(votes.passed) == list(votes.best) == [1, 2, 4, 6]
    texts, problems = votes.samples.texts, votes.samples.problems
    assert len(texts) == 180
    rows = [range(i, i + 6) for i in range(0, 180, 6)]
    assert all(problems[i] == problems[own[0]] for own in rows for i in own)
    right = [CLOCK.verify(text, problem) == 1 for text, problem in zip(texts, problems, strict=True)]
    assert votes.passed[1].share == votes.majority[1].share == votes.best[1].share == pytest.approx(sum(right) / 180)
    assert votes.passed[6].share == pytest.approx(statistics.mean(any(right[i] for i in own) for own in rows))
    assert votes.passed[6].problems == 30
    assert 0 < votes.passed[1].share < votes.passed[6].share
    pairs = [own[i : i + 2] for own in rows for i in (0, 2, 4)]
    finals = [CLOCK.final(text) for text in texts]
    tied = [len({finals[i] for i in pair} - {None}) == 2 for pair in pairs]
    assert votes.ties[2] == pytest.approx(statistics.mean(tied))
    # two that disagree are drawn by lot: no better than one
    assert votes.majority[2].share == pytest.approx(votes.majority[1].share, abs=0.02)


def test_a_vote_by_verified_steps_finds_what_the_majority_does_not():
    policy, vocabulary = load_policy(ASSETS / "clock10")
    votes = evaluate_votes(policy, vocabulary, RECIPE, samples=16, n=60, scorer=verified_steps(CLOCK))
    assert votes.weighted[16].share > votes.majority[16].share + 0.1
    assert votes.best[16].share > votes.majority[16].share + 0.1


def test_forced_completions_can_be_voted_on():
    policy, vocabulary = load_policy(ASSETS / "clock10")
    write = partial(force, at=5, text="=")
    votes = evaluate_votes(policy, vocabulary, RECIPE, samples=2, n=20, rollout_fn=write)
    assert all(text.index("=") <= 5 for text in votes.samples.texts)


def test_grades_and_negative_weights_have_no_vote():
    policy, vocabulary = load_policy(ASSETS / "clock10")
    graded = dataclasses.replace(RECIPE, task=dataclasses.replace(CLOCK, score_range=(0.0, 1.0)))
    with pytest.raises(ValueError, match="right or wrong, and samples of at least 1; got 2"):
        evaluate_votes(policy, vocabulary, graded, samples=2, n=4)
    rng = random.Random(0)
    worse = lambda completions, **_: [rng.random() - 0.9 for _ in completions]  # noqa: E731
    with pytest.raises(ValueError, match="a weight of a vote must be at least 0; the scorer gives -0"):
        evaluate_votes(policy, vocabulary, RECIPE, samples=2, n=4, scorer=worse)


def test_the_command_prints_a_table(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "def longer(completions, **_):\n    return list(map(float, map(len, completions)))"
    )
    command = ["evaluate", "start", "--task", "clock10", "-n", "12"]
    assert main([*command, "--samples", "3", "--scorer", "mine.py:longer"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "12 distinct problems, 3 completions of each" in lines[0]
    assert [line.split()[0] for line in lines[1:]] == ["n", "pass@n", "majority", "weighted", "best", "ties"]
    assert lines[1].split() == ["n", "1", "2", "3"]
    assert main([*command, "--samples", "2", "--force-at", "3", "--force-text", "="]) == 0
    assert "weighted" not in capsys.readouterr().out
    assert main([*command, "--samples", "2", "--scorer", "steps"]) == 0
    assert "weighted" in capsys.readouterr().out
    assert main([*command, "--force-at", "3", "--force-text", "="]) == 0
    assert "sampled" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--samples", "0"], "samples must be at least 1"),
        (["--scorer", "steps"], "--scorer changes nothing by itself: give --samples N as well"),
        (["--force-at", "3"], "--force-at and --force-text go together"),
        (
            ["--samples", "2", "--scorer", "x"],
            "'x' is no folder with a scorer of steps, and names no value of a Python file",
        ),
    ],
)
def test_flags_of_votes_that_do_not_fit(capsys, flags, message):
    assert message in fails(capsys, "evaluate", "start", "--task", "clock10", "-n", "4", *flags)
