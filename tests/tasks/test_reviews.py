"""The preference task: its score by hand, its range by listing all reviews, and what its design claims."""

import itertools
import random
import statistics
from collections import Counter

import pytest

from rlhf_minimal.tasks import Problem, get_task
from rlhf_minimal.tasks.reviews import BEST, DISHES, GUESTS, VALUES, WORST, gold_score

TASK = get_task("reviews")
ORDER = Problem("mia tea?", "")


@pytest.mark.parametrize(
    ("review", "score"),
    [
        ("", 0),
        ("tea", 2),
        ("tea tea", 2),  # named once or twice, it is named
        ("tea tea tea", 0),  # 2 for naming it, 2 off for the third time
        ("pie", -2),
        ("yum", 2),
        ("yum yum yum", 4),
        ("yum yum yum yum", 0),
        ("yum yum yum yum yum", -8),
        ("yumm", -2),
        ("hot tea wow big odd", 1 + 2 + 1.5 + 0.5 - 0.5),
        ("old dry bad old dry yum yum yum yum", -1 - 1.5 - 2 - 1 - 1.5),  # the cook reads five words
        ("  tea   yum ", 4),
    ],
)
def test_the_score_by_hand(review, score):
    assert gold_score(review, ORDER) == TASK.verify(review, ORDER) == score


def test_the_range_is_that_of_all_reviews():
    """The score counts words, so multisets of them are all there is: 0 to 5 of 18 kinds, two of which are no words."""
    words = [*DISHES, *VALUES, "no", "word"]
    scores = {}
    for n in range(6):
        for review in itertools.combinations_with_replacement(words, n):
            scores[review] = gold_score(" ".join(review), ORDER)
    assert max(scores.values()) == BEST
    assert min(scores.values()) == WORST
    assert [sorted(review) for review, score in scores.items() if score == BEST] == [
        ["tea", "wow", "wow", "yum", "yum"]
    ]


def test_the_answer_that_comes_with_a_problem_is_a_best_one():
    for problem in TASK.problems("train", 100, seed=0):
        assert gold_score(problem.answer, problem) == BEST


def test_every_guest_may_order_everything_and_both_sides_of_the_wall_are_manned():
    seen = {split: {p.prompt for p in TASK.problems(split, 3000, seed=0)} for split in ("train", "held_out")}
    assert len(seen["train"] | seen["held_out"]) == len(GUESTS) * len(DISHES)
    assert len(seen["held_out"]) >= 5


def demonstrations(n):
    rng = random.Random(0)
    return [(problem, TASK.teacher(problem, rng)) for problem in TASK.problems("train", n, seed=0)]


def test_guests_write_five_words_and_never_one_of_them_three_times():
    named = others = doubled = 0
    for problem, review in demonstrations(3000):
        words = review.split()
        assert len(words) == 5
        assert set(words) <= {*DISHES, *VALUES}
        assert max(Counter(words).values()) <= 2
        dish = problem.prompt[-4:-1]
        named += dish in words
        others += bool(set(words) & set(DISHES) - {dish})
        doubled += max(Counter(words).values()) == 2
    assert named / 3000 == pytest.approx(0.6, abs=0.03)
    assert others / 3000 == pytest.approx(0.15, abs=0.03)
    assert 0.5 < doubled / 3000 < 0.8


def test_guests_are_far_from_the_best_and_differ_enough_to_be_compared():
    scores = [gold_score(review, problem) for problem, review in demonstrations(3000)]
    assert statistics.mean(scores) == pytest.approx(0.75, abs=0.3)
    assert statistics.stdev(scores) == pytest.approx(3, abs=0.3)
    assert statistics.mean(score >= BEST - 0.9 for score in scores) < 0.01


def test_pages_of_the_guest_book_fit_the_tiny_model_with_their_end():
    rng = random.Random(0)
    pages = [TASK.corpus(rng) for _ in range(200)]
    assert all(set(page) <= set(TASK.alphabet) and 10 < len(page) <= 63 for page in pages)
    assert len(set(pages)) == 200
