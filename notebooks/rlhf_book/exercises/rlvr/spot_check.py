"""How many tests to draw so that an exploit rarely gets through."""

import math

import torch
from torch import Generator

from ..draws import integer
from ..exercise import Case, Exercise, Mistake


def my_tests_needed(tests: int, passes: int, limit: float) -> int:
    """The fewest different tests: the exploit passes all with at most this chance."""
    drawn = 0
    while math.comb(passes, drawn) / math.comb(tests, drawn) > limit:
        drawn += 1
    return drawn


def _with_replacement(tests: int, passes: int, limit: float) -> int:
    drawn = 0
    while (passes / tests) ** drawn > limit:
        drawn += 1
    return drawn


def _one_less(tests: int, passes: int, limit: float) -> int:
    return my_tests_needed(tests, passes, limit) - 1


def _certain(tests: int, passes: int, limit: float) -> int:
    return passes + 1


def _any_passed(tests: int, passes: int, limit: float) -> int:
    drawn = 0
    while (
        drawn < tests
        and 1 - math.comb(tests - passes, drawn) / math.comb(tests, drawn) < 1 - limit
    ):
        drawn += 1
    return drawn


def _by_share(tests: int, passes: int, limit: float) -> int:
    return math.ceil(tests * (1 - limit))


def _first_test(tests: int, passes: int, limit: float) -> int:
    return 1 if passes / tests <= limit else tests


def _draw(generator: Generator) -> Case:
    tests = integer(generator, 6, 40)
    passes = integer(generator, tests // 2, tests)
    limit = 0.01 + 0.3 * torch.rand(1, generator=generator).item()
    return _case(tests, passes, limit)


def _case(tests: int, passes: int, limit: float) -> Case:
    return Case({"tests": tests, "passes": passes, "limit": limit})


SPOT_CHECK = Exercise(
    id="rlvr-spot-check",
    title="how many tests to draw",
    concept="rlvr",
    minutes=10,
    difficulty="core",
    statement=r"""
    Tests cost time, so not all of them are run. For each program some of the `tests` are drawn, all different, and it passes if it
    passes these. An exploit passes `passes` of them (fewer than all). Write `my_tests_needed(tests, passes, limit)`: the smallest number of
    tests to draw, so that it gets through with a chance of at most `limit`.

    Predict first: 100 tests, and the exploit passes 90. How many for a chance of 0.05: about 3, 25 or 90? Does it help to draw
    anew for each completion, in place of once for the whole run?
    """,
    solution=my_tests_needed,
    cases=(
        _case(100, 90, 0.05),
        _case(10, 9, 0.25),
        _case(11, 3, 0.1),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _with_replacement,
            "The tests are all different: after each one that it passes, fewer such tests are left.",
        ),
        Mistake(_one_less, "One too few: the chance has to be at most the limit."),
        Mistake(
            _certain, "That many make it certain; a chance up to the limit is allowed."
        ),
        Mistake(
            _any_passed, "It has to pass every test that is drawn, not one of them."
        ),
        Mistake(_by_share, "The limit is a chance, not a share of the tests."),
        Mistake(
            _first_test,
            "You ask about a single test, and then give up. What do two different ones do?",
        ),
    ),
    where="Count the choices of tests: how many of them hold only tests that it passes?",
    idea="""
    Of all choices of $k$ tests out of `tests`, those that it survives lie wholly among its `passes`. The chance is
    a quotient of two binomial coefficients, and falls with $k$.
    """,
    outline="""
    ```python
    drawn = 0
    while ... > limit:
        drawn += 1
    return drawn
    ```
    """,
    right="Right. Drawn once for the whole run, they are a fixed set again, and an exploit of that set is paid every time.",
)
