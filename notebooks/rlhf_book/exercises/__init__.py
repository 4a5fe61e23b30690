"""Exercises that say why an answer is wrong: hand the checker your function.

    from rlhf_book.exercises import check, hint, solution
    check("grpo-advantage", my_group_advantage)
    hint("grpo-advantage")
    solution("grpo-advantage")

A checker is no exam: it runs in your process, and whoever wants to cheat it can.

`exercise.py` and `bug.py` hold the machinery; each chapter with exercises has a folder of its own here.
"""

import difflib
from typing import Any

from . import (
    agents,
    anatomy,
    choosing,
    dapo,
    deepseek_r1,
    diagnosis,
    distillation,
    dr_grpo,
    gae,
    grpo,
    gspo,
    judges,
    kimi,
    kl_divergence,
    language_models,
    making_it_fast,
    mixture_of_experts,
    off_policy,
    policy_gradients,
    ppo_clip,
    ppo_rlhf,
    process_rewards,
    reward_models,
    rloo,
    rlvr,
    scaling_up,
    self_play,
    soft_gates,
    test_time_scaling,
    trust_regions,
    whiteboard,
)
from .bug import Bug
from .cells import Shown
from .exercise import Exercise, Verdict

__all__ = [
    "BUGS",
    "EXERCISES",
    "Bug",
    "Exercise",
    "Shown",
    "Verdict",
    "check",
    "hint",
    "solution",
]

CHAPTERS = (
    language_models,
    policy_gradients,
    reward_models,
    kl_divergence,
    trust_regions,
    ppo_clip,
    gae,
    ppo_rlhf,
    grpo,
    rloo,
    dr_grpo,
    dapo,
    gspo,
    mixture_of_experts,
    soft_gates,
    kimi,
    off_policy,
    distillation,
    anatomy,
    rlvr,
    deepseek_r1,
    process_rewards,
    test_time_scaling,
    self_play,
    judges,
    agents,
    diagnosis,
    making_it_fast,
    scaling_up,
    choosing,
    whiteboard,
)  # in the book's order
EXERCISES: dict[str, Exercise] = {
    exercise.id: exercise for chapter in CHAPTERS for exercise in chapter.EXERCISES
}
BUGS: dict[str, Bug] = {bug.id: bug for chapter in CHAPTERS for bug in chapter.BUGS}
_shown: dict[str, int] = {}  # id -> level of the last hint that `hint` has shown


def check(exercise: str, function: Any) -> Verdict:
    """Try your function on cases of growing difficulty, and read what is wrong with it.

    For a bug: whether the code, as you have mended it, has the property that the printed code lacks.

    Args:
        exercise: an id, such as "grpo-advantage"; ``EXERCISES`` and ``BUGS`` list them.
        function: yours; arguments are passed by position, in the order of the stub.

    Returns:
        A verdict that shows itself, and is true if the function passed. It never raises for a wrong answer. In a
        notebook a stub that nobody has touched shows nothing.

    Raises:
        ValueError: an id that does not exist.

    Example:
        >>> check("grpo-dead-groups", lambda p, group_size: (p**group_size).mean())
        Not yet (grpo-dead-groups). You count the groups in which all are right. What about those where all are wrong?
    """
    return _find(exercise).check(function)


def hint(exercise: str, level: int | None = None) -> Shown:
    """Where to look; called again, the idea; called once more, the shape of the code. Never the decisive line.

    For a bug: the property that the code breaks, what to work out, and the shape of the mended lines.

    Args:
        exercise: an id, such as "grpo-advantage".
        level: which hint; default: the one after the last that was shown, and the last one again after that.

    Raises:
        ValueError: an id or a level that does not exist.

    Example:
        >>> hint("grpo-leave-one-out", level=1)
        **Hint 1 of 3** (`grpo-leave-one-out`): Do it by hand for a group of two: there is exactly one other reward.
    """
    return next_hint(_shown, exercise, level)


def next_hint(shown: dict[str, int], exercise: str, level: int | None = None) -> Shown:
    """`hint` for somebody who keeps count: `shown` has the level of each exercise's last hint, and is kept up to date.

    Example:
        >>> mine = {"grpo-leave-one-out": 2}
        >>> next_hint(mine, "grpo-leave-one-out").markdown[:15], mine
        ('**Hint 3 of 3**', {'grpo-leave-one-out': 3})
    """
    hints = _find(exercise).hints
    if level is None:
        level = min(shown.get(exercise, 0) + 1, len(hints))
    if type(level) is not int or not 1 <= level <= len(hints):
        raise ValueError(
            f"there is no hint {level!r} for {exercise!r}: "
            f"expected a level from 1 to {len(hints)}"
        )
    shown[exercise] = level
    text = hints[level - 1]
    between = "\n\n" if text.startswith("```") else " "
    return Shown(f"**Hint {level} of {len(hints)}** (`{exercise}`):{between}{text}")


def solution(exercise: str) -> Shown:
    """One solution: its source, and what there is to say about it.

    For a bug: the property that reveals it, the mended code, and what was wrong. The book has the same text on its
    pages of solutions.

    Raises:
        ValueError: an id that does not exist.

    Example:
        >>> "def my_leave_one_out" in solution("grpo-leave-one-out").markdown
        True
    """
    return Shown(f"**Solution** (`{exercise}`)\n\n{_find(exercise).solution_markdown}")


def _find(name: str) -> Exercise | Bug:
    known: dict[str, Exercise | Bug] = {**EXERCISES, **BUGS}
    if isinstance(name, str) and name in known:
        return known[name]
    near = difflib.get_close_matches(str(name), known, n=3)
    advice = (
        f"did you mean {' or '.join(map(repr, near))}?"
        if near
        else f"expected one of {', '.join(known)}"
    )
    raise ValueError(f"there is no exercise {name!r}: {advice}")
