"""A variant accepts its own convention, written a second time, and refuses the book's and the other courses'."""

import pytest

from rlhf_book.course import VARIANTS, checker, choice
from rlhf_book.course.variants import apply
from rlhf_book.exercises import EXERCISES
from tests.course.submitted import ANSWERS, IMPORTS

CHOICES = [(name, picked) for name, known in VARIANTS.items() for picked in known]
COUNT = 20  # drawn batches; the printed ones come on top


def named(value):
    return getattr(value, "name", value)


def handed_in(name, picked):
    names = {}
    exec(IMPORTS + ANSWERS[name, picked.name], names)
    return names[EXERCISES[name].solution.__name__]


def test_there_are_enough_and_each_is_written_twice():
    assert len(VARIANTS) >= 10
    assert set(ANSWERS) == {(name, picked.name) for name, picked in CHOICES}


@pytest.mark.parametrize(("name", "picked"), CHOICES, ids=named)
def test_its_own_convention_passes_and_the_books_does_not(name, picked):
    task = apply(EXERCISES[name], picked, count=COUNT)
    verdict = task.check(handed_in(name, picked))
    assert verdict, verdict
    refused = task.check(EXERCISES[name].solution)
    assert not refused
    assert "This is the book's version" in refused.message
    for other in VARIANTS[name]:
        if other is not picked:
            assert not task.check(handed_in(name, other))


@pytest.mark.parametrize(("name", "picked"), CHOICES, ids=named)
def test_what_the_statement_adds_names_what_it_changes(name, picked):
    task = apply(EXERCISES[name], picked)
    assert task.statement.endswith(f"**In this course, unlike in the book:** {picked.asks}")
    assert picked.asks[0].islower()
    assert picked.asks.endswith(".")


def test_a_seed_draws_the_same_for_everybody_and_seeds_differ():
    for name, known in VARIANTS.items():
        drawn = [choice(name, seed) for seed in range(40)]
        assert drawn == [choice(name, seed) for seed in range(40)]
        assert set(drawn) == set(known)  # in forty courses each convention is asked for
    assert choice("lm-two-decoders", 3) is None


def test_students_check_with_the_conventions_of_their_course():
    check = checker(seed=7)
    picked = choice("scale-lora", 7)
    assert check("scale-lora", handed_in("scale-lora", picked))
    assert not check("scale-lora", EXERCISES["scale-lora"].solution)
    assert check("board-gspo-ratio", lambda *_: ...).begun is False
    with pytest.raises(ValueError, match="there is no exercise"):
        check("no-such-exercise", print)
