"""What is peculiar to the exercises on soft gates: their solutions against the library and against each other."""

import math

import pytest

from rlhf_book.exercises import BUGS, EXERCISES
from rlhf_book.exercises.soft_gates.climbs import my_climbed
from rlhf_book.exercises.soft_gates.peak import my_peak

IDS = ["gates-peak", "gates-climbs", "gates-neighbour"]


def test_they_stand_in_the_order_of_the_chapter_and_its_depth():
    assert [name for name in EXERCISES if name.startswith("gates-")] == IDS
    assert "flat-top" in BUGS


def test_the_chapters_numbers_of_the_peak():
    w, c = my_peak(1.0)
    assert (round(w, 2), round(c, 2)) == (2.06, 1.57)
    # What the exercise says of tau 4.3: a weight of 1 at a ratio of 1.2.
    assert 1.2 / math.cosh(4.33 * 0.2 / 2) ** 2 == pytest.approx(1.0, abs=0.002)


def test_what_maxrl_climbs_goes_to_the_logarithm():
    for p in (0.1, 0.5, 0.9):
        differences = my_climbed(p, 4000) - my_climbed(0.3, 4000)
        assert differences == pytest.approx(math.log(p / 0.3), abs=1e-9)
    assert my_climbed(0.25, 2) == pytest.approx(0.25)  # two completions: the pass rate itself
