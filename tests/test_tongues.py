"""The clock with two languages: its rules against completions written by hand, its writers against their shares."""

import random

import pytest

from rlhf_book import tongues
from rlhf_minimal.tasks import Problem

PROBLEM = Problem("3+8+5+......:", "g")


@pytest.mark.parametrize(
    ("text", "right", "tidy", "small"),
    [
        ("3d8b5g(g)", 1, 1, 1),
        ("3D8b5G(g)", 1, 1, 0.5),
        ("3D8B5GG", 1, 0, 0),
        ("(g)", 1, 1, 1),
        ("g)", 1, 0, 1),
        ("3d8b5g(a)", 0, 1, 1),
        ("3d8b5g(g", 1, 0, 1),
        ("3d8b5g(g)(a)", 0, 0, 1),
        ("8b(g)g", 1, 0, 1),
        ("()", 0, 0, 0),
        ("", 0, 0, 0),
    ],
)
def test_three_rules_and_none_reads_anothers_part(text, right, tidy, small):
    assert tongues.accuracy(text, PROBLEM) == right
    assert tongues.in_format(text) == tidy
    assert tongues.consistency(text) == small


def test_a_question_of_letters_has_no_rule_and_no_right_answer():
    problem = Problem("c?a?........:", "")
    assert not tongues.has_rule(problem.prompt)
    assert tongues.has_rule(PROBLEM.prompt)
    assert tongues.accuracy("", problem) == 0
    assert [tongues.liking(text, problem) for text in ("ca", "CA", "cb", "cab", "")] == [4, 4, 2, 3, -2]
    assert tongues.verify("ca", problem) == 4
    assert tongues.verify("(g)", PROBLEM) == 1


def test_moves_are_checked_from_the_one_before():
    assert tongues.right_moves("3d8b5g(g)", PROBLEM) == (3, 3, True)
    assert tongues.right_moves("3d8C5h(h)", PROBLEM) == (3, 2, True)  # a slip, and a right move from there
    assert tongues.right_moves("3d(g)", PROBLEM) == (1, 1, False)
    assert tongues.right_moves("4d8b5g(g)", PROBLEM) == (3, 2, False)


def test_a_crowd_writes_by_its_shares():
    rng, texts = random.Random(0), []
    for _ in range(4000):
        texts.append(tongues.write(PROBLEM.prompt, tongues.CROWD, rng))
    moves = [tongues.right_moves(text, PROBLEM) for text in texts]
    assert sum(count == 0 for count, *_ in moves) / 4000 == pytest.approx(0.55 + 0.2 / 3, abs=0.03)
    assert sum(whole for *_, whole in moves) / 4000 == pytest.approx(0.25, abs=0.03)
    assert sum(map(tongues.in_format, texts)) / 4000 == pytest.approx(0.4, abs=0.03)
    small = [text for text, (count, *_) in zip(texts, moves, strict=True) if count and tongues.consistency(text) == 1]
    capital = [text for text, (count, *_) in zip(texts, moves, strict=True) if count and text.upper() == text]
    slips = [
        1
        - sum(tongues.right_moves(t, PROBLEM)[1] for t in some) / sum(tongues.right_moves(t, PROBLEM)[0] for t in some)
        for some in (small, capital)
    ]
    assert slips[0] == pytest.approx(0.12 * 0.9, abs=0.02)  # a random hour is the right one in ten
    assert slips[1] == pytest.approx(0.03 * 0.9, abs=0.015)


def test_a_tidy_writer_is_tidy():
    rng = random.Random(0)
    for problem in tongues.task("reasoning").problems("train", 200, seed=0):
        text = tongues.write(problem.prompt, tongues.TIDY, rng)
        assert tongues.in_format(text) == tongues.consistency(text) == 1
        assert tongues.right_moves(text, problem)[2]


def test_both_kinds_come_and_fit_the_budget():
    task = tongues.task("both")
    problems = task.problems("train", 400, seed=0)
    ruled = sum(tongues.has_rule(problem.prompt) for problem in problems)
    assert 150 < ruled < 250
    rng = random.Random(0)
    for problem in problems:
        assert len(problem.prompt) == 2 * tongues.SLOTS + 1
        text = tongues.write(problem.prompt, tongues.CROWD, rng)
        assert len(text) < task.max_new_tokens
        assert set(problem.prompt + text) <= set(task.alphabet)
