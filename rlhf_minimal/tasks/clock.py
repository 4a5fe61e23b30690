"""A clock whose hand is moved several times: a task on which working step by step pays.

A problem is a row of moves, and the answer is the hour at which the hand ends. It starts at `a`. On a dial of ten
hours, `3+8+5+9+............:` may be completed by

    3d8b5g9f=f    every move, with the hour after it
    3d8b=f        two moves, then a jump to the answer
    =f            the jump at once

After the last move, idle moves `.f` may follow. Each move can be checked from the one before it, and is easy to learn.
A jump over several moves is not, so an answer is a guess unless the moves are worked.

The fill of dots gives all prompts one length: move j then stands at a constant distance before step j of a completion,
so a tiny model learns to read the right one.
"""

import random
import string
from functools import partial
from typing import Any

from rlhf_minimal.tasks.base import Problem, Step, Task

HABITS = (0.6, 0.2, 0.2)  # shares of the teacher's completions that jump at once, after some moves, after all
SLIP = 0.05  # share of the teacher's moves that end at a random hour; he goes on from there
IDLE = 0.3  # after the last move he writes an idle one with this probability, and another one, and so on

# Settings of a kind of clock, by the word after `clock:`.
KINDS: dict[str, dict[str, Any]] = {
    "long": {"high": 28, "slots": 30},
    "slip": {"slip": 0.25, "habits": (0.1, 0.2, 0.7)},
}
NUMBERS = ("hours", "low", "high")  # settings that may follow


def _moves_of(prompt: str) -> list[int]:
    """The moves of a prompt.

    Example:
        >>> _moves_of("3+8+....:")
        [3, 8]
    """
    return [int(move) for move in prompt[::2] if move.isdigit()]


def _final_hour(completion: str) -> str | None:
    """What stands behind the first `=`; None if nothing does.

    Example:
        >>> _final_hour("3d8b=f"), _final_hour("3d8b")
        ('f', None)
    """
    return completion.partition("=")[2] or None


def _check_moves(completion: str, problem: Problem, *, hours: int) -> list[Step]:
    """Whether each written move is the prompt's next (`.` after the last), and its hour right, from the one before.

    Example:
        >>> _check_moves("3d8c5h=h", Problem("3+8+5+9+....:", "f"), hours=10)  # 8 from d is b; 5 from c is h
        [Step(end=2, mark=1.0), Step(end=4, mark=0.0), Step(end=6, mark=1.0)]
    """
    due, at, steps = _moves_of(problem.prompt), 0, []
    work = completion.partition("=")[0]
    for i in range(0, len(work) - 1, 2):
        move = due[i // 2] if i // 2 < len(due) else 0
        hour = string.ascii_lowercase.find(work[i + 1])
        right = work[i] == (str(move) if i // 2 < len(due) else ".") and hour == (at + move) % hours
        steps.append(Step(i + 2, float(right)))
        at = max(hour, 0)
    return steps


def _parts_of_answer(completion: str, problem: Problem, *, hours: int) -> tuple[float, float]:
    """Whether the final hour is right, and the share of the written moves that are (0 if none is written).

    Example:
        >>> _parts_of_answer("3d8c=b", Problem("3+8+....:", "b"), hours=10)
        (1.0, 0.5)
    """
    marks = [step.mark for step in _check_moves(completion, problem, hours=hours)]
    return float(_final_hour(completion) == problem.answer), sum(marks) / max(len(marks), 1)


def _draw_moves(completion: str, problem: Problem, *, hours: int) -> str:
    """The hand after each move of a completion, as lines of text; `x` marks a wrong move, or a wrong answer.

    Example:
        >>> print(_draw_moves("3d8c=e", Problem("3+8+....:", "b"), hours=10))
             abcdefghij
             ^
        3 d  ...^
        8 c  ..^         x
        = e  ....^       x
    """
    dial = string.ascii_lowercase[:hours]
    steps = _check_moves(completion, problem, hours=hours)
    shown = [(completion[end - 2 : end], mark == 1) for end, mark in steps]
    if (answer := _final_hour(completion)) is not None:
        shown.append((f"={answer}", answer == problem.answer))
    lines = [f"     {dial}", "     ^"]
    for text, right in shown:
        hand = "." * dial.find(text[1:]) + "^" if text[1:] in set(dial) else "?"
        lines.append(f"{text[0]} {text[1:]}  {hand:<{hours}}  {'' if right else 'x'}".rstrip())
    return "\n".join(lines)


def clock(
    name: str = "clock",
    *,
    hours: int = 26,
    low: int = 2,
    high: int = 14,
    slots: int = 16,
    slip: float = SLIP,
    habits: tuple[float, float, float] = HABITS,
    start: str = "",
) -> Task:
    """The task "where does the hand end?".

    Args:
        name: The name of the task.
        hours: Letters on the dial, 10 to 26.
        low: Fewest moves of a problem.
        high: Most moves, at most `slots`.
        slots: Places for moves in a prompt; those that are left over are filled with dots.
        slip: Share of the teacher's moves that end at a random hour.
        habits: How often he jumps at once, after some of the moves, after all of them.
        start: The shipped start that fits, if it is not the one named as the task.

    Raises:
        ValueError: If there are fewer than 10 hours or more than 26, or not 1 <= low <= high <= slots.
    """
    if not 10 <= hours <= 26 or not 1 <= low <= high <= slots:
        raise ValueError(
            f"a clock needs 10 to 26 hours and 1 <= low <= high <= {slots}; got hours {hours}, low {low}, high {high}"
        )
    dial = string.ascii_lowercase[:hours]

    def make(rng: random.Random) -> Problem:
        moves = [rng.randrange(10) for _ in range(rng.randint(low, high))]
        return Problem("".join(f"{move}+" for move in moves).ljust(2 * slots, ".") + ":", dial[sum(moves) % hours])

    def teacher(problem: Problem, rng: random.Random) -> str:
        moves, at, text = _moves_of(problem.prompt), 0, ""
        worked = rng.choices((0, rng.randrange(len(moves)), len(moves)), habits)[0]
        for move in moves[:worked]:
            at = rng.randrange(hours) if rng.random() < slip else (at + move) % hours
            text += f"{move}{dial[at]}"
        while worked == len(moves) and rng.random() < IDLE and len(text) < 2 * slots:
            text += f".{dial[at]}"
        return f"{text}={dial[(at + sum(moves[worked:])) % hours]}"  # the jump itself is right, from where he is

    return Task(
        name=name,
        about=f"where the hand of a clock of {hours} hours ends after {low} to {high} moves",
        alphabet="0123456789+.:=" + dial,
        max_new_tokens=5 * (2 * slots + 3) // 4 + 1,  # room for every move, the answer, its end token, and a fifth more
        make=make,
        verify=lambda completion, problem: float(_final_hour(completion) == problem.answer),
        teacher=teacher,
        final=_final_hour,
        steps=partial(_check_moves, hours=hours),
        parts=partial(_parts_of_answer, hours=hours),
        picture=partial(_draw_moves, hours=hours),
        sizes={"heads": 4, "max_length": 8 * slots},
        start=start,
    )


def clock_task(settings: str) -> Task:
    """The clock that a name of the family says: `clock:long`, `clock:hours=10,low=12`, `clock:slip,low=12,high=14`.

    Args:
        settings: What stands after the colon: first one of `KINDS`, if any, then numbers of `NUMBERS`.

    Raises:
        ValueError: If it says something else.

    Example:
        >>> clock_task("low=12,high=14").about
        'where the hand of a clock of 26 hours ends after 12 to 14 moves'
    """
    kind, comma, rest = settings.partition(",")
    kind, rest = ("", settings) if "=" in kind else (kind, rest)
    pairs = [part.partition("=") for part in rest.split(",") if rest]
    if kind not in ("", *KINDS) or any(name not in NUMBERS or not value.isdecimal() for name, _, value in pairs):
        raise ValueError(
            f"cannot read the clock {settings!r}: after clock: comes {' or '.join(KINDS)} or nothing, then numbers, "
            f"separated by commas: {', '.join(f'{name}=N' for name in NUMBERS)}"
        )
    numbers = {name: int(value) for name, _, value in pairs}
    dial = "" if numbers.get("hours", 26) == 26 else str(numbers["hours"])
    start = f"clock{dial}-{kind}" if kind else f"clock{dial}"
    options: Any = {**KINDS.get(kind, {}), **numbers}
    return clock(f"clock:{settings}", start=start, **options)


CLOCK = clock("clock")
CLOCK_10 = clock("clock10", hours=10)
