"""Exercises that say why an answer is wrong: hand the checker your function.

    from rlhf_book.exercises import check
    check("grpo-advantage", my_group_advantage)

`exercise.py` and `bug.py` hold the machinery; each chapter with exercises has a folder of its own here.
"""

import difflib
from typing import Any

from . import dr_grpo, gae, grpo, gspo, making_it_fast, ppo_clip, scaling_up
from .bug import Bug
from .exercise import Exercise, Verdict

__all__ = ["BUGS", "EXERCISES", "Bug", "Exercise", "Verdict", "check"]

CHAPTERS = (
    ppo_clip,
    gae,
    grpo,
    dr_grpo,
    gspo,
    making_it_fast,
    scaling_up,
)  # in the book's order
EXERCISES: dict[str, Exercise] = {
    exercise.id: exercise for chapter in CHAPTERS for exercise in chapter.EXERCISES
}
BUGS: dict[str, Bug] = {bug.id: bug for chapter in CHAPTERS for bug in chapter.BUGS}


def check(exercise: str, function: Any) -> Verdict:
    """Try your function on cases of growing difficulty, and read what is wrong with it.

    Args:
        exercise: an id, such as "grpo-advantage"; ``EXERCISES`` lists them.
        function: yours; arguments are passed by position, in the order of the stub.

    Returns:
        A verdict that shows itself, and is true if the function passed. It never raises for a wrong answer.

    Raises:
        ValueError: an id that does not exist.

    Example:
        >>> check("grpo-dead-groups", lambda p, group_size: (p**group_size).mean())
        Not yet (grpo-dead-groups). You count the groups in which all are right. What about those where all are wrong?
    """
    if not isinstance(exercise, str) or exercise not in EXERCISES:
        near = difflib.get_close_matches(str(exercise), EXERCISES, n=1)
        hint = (
            f"did you mean {near[0]!r}?"
            if near
            else f"expected one of {', '.join(EXERCISES)}"
        )
        raise ValueError(f"there is no exercise {exercise!r}: {hint}")
    return EXERCISES[exercise].check(function)
