"""What a course needs beside the chapters: variants of exercises, and grading.

    from rlhf_book.course import checker
    check = checker(seed=7)
    check("grpo-advantage", my_group_advantage)

`variants.py` changes one convention of an exercise; `worker.py` is the process that runs a student's code,
`isolation.py` the walls around it, `inside.py` the last step within them, `session.py` the line between the two,
`grading.py` what is written down, `halves.py` when half of the points are given, `feedback.py` what each student is told.
"""

from collections.abc import Callable
from typing import Any

from ..exercises import Verdict
from .variants import VARIANTS, Choice, Drawn, choice, exercise_for

__all__ = ["VARIANTS", "Choice", "Drawn", "checker", "choice", "exercise_for"]


def checker(seed: int) -> Callable[[str, Any], Verdict]:
    """`check` as the course with this seed needs it: it knows the conventions that the seed draws.

    Example:
        >>> check = checker(seed=7)
        >>> check("scale-verifier", lambda completion, answer: True).passed
        False
    """
    known: dict[str, Drawn] = {}

    def check(exercise: str, function: Any) -> Verdict:
        if exercise not in known:
            known[exercise] = exercise_for(exercise, seed)
        return known[exercise].check(function)

    return check
