"""Half points: for a function that is right in the ordinary case, and wrong where it gets harder.

A checker tries the chapter's own batch, then cases that each separate one mistake from the right answer, then drawn
batches. A function that is right on the first and on most of the drawn ones has the thing itself, and lacks a case: a
hole in the mask, a group of equals, a logarithm of 0. Of the mistakes that the checkers of the plans know, and that are
right on the chapter's batch, none is right on a share of `COUNTED` drawn ones that lies in `NOBODY`. `ENOUGH` lies there.

Where drawn batches cannot tell, it is all or nothing: an answer that knows nothing must not come near.
"""

from functools import cache

from ..exercises import EXERCISES
from .variants import VARIANTS, Drawn, apply

ENOUGH = 0.55  # of the hidden batches
NOBODY = (0.50, 0.58)  # the shares that no known mistake has
COUNTED = 600  # batches, of the book's own, on which they were counted
GUESSED = 0.25  # of them that one and the same answer may have right
TRIED = 60  # batches, to find out whether one answer has more
COARSE = frozenset({"rm-rise"})  # most of its batches do not depend on beta


@cache
def divisible(exercise: str) -> bool:
    """Whether half points can be had for it, whatever convention a course draws.

    Example:
        >>> divisible("grpo-advantage"), divisible("scale-verifier")
        (True, False)
    """
    book = EXERCISES[exercise]
    ways = (None, *VARIANTS.get(exercise, ()))
    tried = (apply(book, picked, count=TRIED) for picked in ways)
    return exercise not in COARSE and all(
        drawn.most_with_one_answer() <= GUESSED for drawn in tried
    )


def half(exercise: Drawn, function: object) -> str:
    """Why a function that is not right has half of the points; "" if it has none.

    Args:
        exercise: as the course sets it, with the grader's own batches.
        function: the student's, on the other side of the walls.
    """
    if not divisible(exercise.id):
        return ""
    right, of = exercise.rightly_drawn(function)
    if right < ENOUGH * of:
        return ""
    return f"Half of the points: right on the printed batch and on {right} of {of} hidden ones."
