"""The cheat sheet prints formulas in TeX whose Python twins are held to the library: the two say the same numbers.

That the Python forms are the gradients is tests/test_anatomy.py.
"""

import re

import pytest

import rows as pages
from rlhf_book.facts import facts_of
from rlhf_minimal import ALGORITHMS
from tests.complete import COMPLETE, all_rows_complete

CALLED = {"\\min": "min(", "\\log": "log(", "\\sigma": "sigmoid(", "e^": "exp("}


def numbers(formula):
    """The numbers of a formula; 1 and 0 stand in many places of one spelling and in none of the other."""
    return {float(number) for number in re.findall(r"\d*\.?\d+", formula)} - {0.0, 1.0}


@pytest.mark.parametrize("name", COMPLETE)
def test_the_printed_formula_has_the_numbers_and_functions_of_the_one_that_is_tested(name):
    says = facts_of(name)
    assert numbers(says.weight) == numbers(says.weight_code)
    assert numbers(says.share) == numbers(says.share_code)
    for printed, called in CALLED.items():
        assert (printed in says.weight) == (called in says.weight_code)


@pytest.mark.parametrize("name", COMPLETE)
def test_a_formula_may_be_set(name):
    """Braces and dollars are closed, and nothing in it ends a cell of the table."""
    says = facts_of(name)
    for formula in (*says.objective.split(";"), *says.weight.split(";"), says.share):
        assert formula.count("{") == formula.count("}")
        assert not set(formula) & set("$|\n")


@pytest.mark.parametrize("name", COMPLETE)
def test_a_printed_formula_has_no_mark_of_a_line_left(name):
    for formula in (facts_of(name).objective, facts_of(name).weight, facts_of(name).share):
        assert ";" not in pages.set_in_lines(formula)


@pytest.mark.parametrize("name", COMPLETE)
def test_a_spring_to_the_sampler_is_written_in_the_formulas(name):
    """The sheet says so: a KL to the old policy stands in objective and weight, no other does."""
    against_old, says = any(term.against == "old" for term in ALGORITHMS[name].kl), facts_of(name)
    squares = ("\\log^2 w", "(\\sum_t \\log w_{i,t}\\big)^2")
    assert against_old == any(square in says.objective for square in squares)
    assert against_old == ("log(w)" in says.weight_code)


@all_rows_complete
def test_the_sheet_has_a_line_for_every_row():
    head, _, *derived = pages.cheat_sheet().splitlines()
    _, _, *others = pages.cheat_sheet_of_the_field().splitlines()
    assert [line.split("|")[1].strip(" *") for line in (*derived, *others)] == COMPLETE
    assert {line.count("|") for line in (head, *derived, *others)} == {8}
