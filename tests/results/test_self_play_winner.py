"""What a model that is paid by a judge writes in the end: whole, what the code says today, and as it is told."""

import pytest

from tests.results.scripts import load

script, RECORD = load("self_play_winner")
RUNS = {(run["arm"], run["seed"]): run for run in RECORD["runs"]}


def test_every_arm_has_every_seed_and_its_counts_add_up():
    assert list(RUNS) == [(arm, seed) for arm in script.ARMS for seed in script.SEEDS]
    assert RECORD["problems"] == script.ASKED
    for run in RUNS.values():
        wrong = sum(run["cases"].values())
        assert wrong == round(script.ASKED * (1 - run["right"]))
        assert len(run["shown"]) == script.SHOWN <= run["cases"]["wrong"]
        # of all problems, so at least as many as of those that end wrong
        for what in ("sum", "wrong"):
            paid = run["pays"]["start"]["last" if what == "wrong" else "sum"]
            assert paid * script.ASKED + 1e-6 >= run["cases"][what] + run["cases"]["both"]


def test_the_problems_shown_are_what_they_are_said_to_be():
    for run in RUNS.values():
        for one in run["shown"]:
            a, b = one["prompt"][:-1].split("+")
            assert one["sum"] == f"{int(a) + int(b):04d}"[::-1] != one["last"]
            assert one["yes"]["start"]["sum"] < 0.5 < one["yes"]["start"]["last"]


def test_the_judge_of_the_start_says_today_what_is_recorded():
    model, vocabulary = script.begin()
    for run in RUNS.values():
        for name in ("sum", "first", "last"):
            said = script.judgements(
                model, vocabulary, [one["prompt"] for one in run["shown"]], [one[name] for one in run["shown"]]
            )
            assert said.tolist() == pytest.approx([one["yes"]["start"][name] for one in run["shown"]], abs=0.01)


def test_before_any_step_the_last_completions_are_the_first_ones():
    run = script.run("dose-0", 0, steps=0)
    start, end = run["pays"]["start"], run["pays"]["end"]
    assert start == end
    assert start["first"] == start["last"]
    recorded = RUNS["dose-0", 0]["pays"]["start"]
    assert [start[name] for name in ("sum", "first")] == pytest.approx(
        [recorded[x] for x in ("sum", "first")], abs=0.01
    )


def test_a_quarter_of_the_problems_has_a_lead_and_most_others_tie():
    for seed in script.SEEDS:
        cases = RUNS["frozen", seed]["cases"]
        wrong = sum(cases.values())
        assert 0.2 < cases["wrong"] / wrong < 0.3
        assert (cases["both"] + cases["neither"]) / wrong > 0.7
        assert RUNS["dose-0", seed]["right"] < 0.1
        assert RUNS["dose-0", seed]["pays"]["end"]["sum"] > 0.9  # it says yes to everything
