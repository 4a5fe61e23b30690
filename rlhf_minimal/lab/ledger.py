"""A ledger and a calculator: a task in which an environment answers while the policy writes.

The prompt `k+q:` names two letters. A ledger, drawn anew for every problem and never shown, holds a number for each
letter. A completion may ask for it (`?k`), and the environment writes the number behind; it may call a calculator
(`!47`), which writes the sum, its last digit first. Only what stands behind the first `=` is the answer.

    ?k4?q7!4711=11      asked twice, and calculated
    ?k4?q7=11           asked twice, and added by head
    =80                 guessed

So one tool gives what cannot be known, and the other replaces a computation that can be learnt. The teacher guesses
in 40 % of his completions, asks for one number in 10 %, adds by head in 40 % (and forgets the carry in four of five),
and calculates in 10 %. With `ledger:2` the numbers have two digits; adding them by head is not learnt here.

Chapter: agents.
"""

import random
import re
import string
from collections.abc import Callable, Sequence
from functools import partial

from rlhf_minimal.tasks.base import Problem, Task

KEYS = string.ascii_lowercase
HABITS = {"guess": 0.4, "one": 0.1, "head": 0.4, "tool": 0.1}  # what share of the teacher's completions does what
CARRIES = 0.2  # how often the teacher minds the carry when he adds by head


def make_ledger(rng: random.Random, *, digits: int) -> Problem:
    """Two letters, and the numbers of all of them as the problem's entry."""
    a, b = rng.sample(KEYS, 2)
    numbers = tuple(rng.randrange(10**digits) for _ in KEYS)
    total = numbers[KEYS.index(a)] + numbers[KEYS.index(b)]
    return Problem(f"{a}+{b}:", f"{total:0{digits + 1}d}"[::-1], numbers)


def reply_of_ledger(so_far: str, problem: Problem, *, digits: int) -> str | None:
    """What the ledger or the calculator writes, where the text ends in a call; None elsewhere, and behind `=`.

    Raises:
        ValueError: If the problem has no ledger.

    Example:
        >>> problem = make_ledger(random.Random(0), digits=1)
        >>> reply_of_ledger("!47", problem, digits=1), reply_of_ledger("!4", problem, digits=1)
        ('11', None)
    """
    called = re.search(rf"(\?[a-z]|!\d{{{2 * digits}}})$", so_far)
    if "=" in so_far or called is None:
        return None
    call = called.group()
    if call[0] == "!":
        return f"{int(call[1 : digits + 1]) + int(call[digits + 1 :]):0{digits + 1}d}"[::-1]
    if problem.entry is None:
        raise ValueError(f"the prompt {problem.prompt!r} has no ledger behind it: take problems of the task")
    return f"{problem.entry[KEYS.index(call[1])]:0{digits}d}"


def teach_ledger(problem: Problem, rng: random.Random, *, digits: int) -> str:
    """A completion with the replies in it, as the teacher would have it."""
    a, b = problem.prompt[0], problem.prompt[2]
    x, y = (problem.entry[KEYS.index(key)] for key in (a, b))
    high, asked = 10**digits, f"?{a}{x:0{digits}d}"
    habit = rng.choices([*HABITS], [*HABITS.values()])[0]
    if habit == "guess":
        asked, total = "", rng.randrange(high) + rng.randrange(high)
    elif habit == "one":
        total = x + rng.randrange(high)
    else:
        asked += f"?{b}{y:0{digits}d}"
        total = x + y
        if habit == "tool":
            asked += f"!{x:0{digits}d}{y:0{digits}d}" + f"{total:0{digits + 1}d}"[::-1]
        elif rng.random() >= CARRIES:
            total = sum((x // 10**i + y // 10**i) % 10 * 10**i for i in range(digits))
    return f"{asked}=" + f"{total:0{digits + 1}d}"[::-1]


def final_sum(completion: str) -> str | None:
    """What stands behind the first `=`; None if nothing does."""
    return completion.partition("=")[2] or None


def verify_ledger(completion: str, problem: Problem) -> float:
    """1 if what stands behind the first `=` is the sum, its last digit first."""
    return float(final_sum(completion) == problem.answer)


def calls(completion: str) -> dict[str, int]:
    """How often each tool is called before the answer.

    Example:
        >>> calls("?k4?q7!4711=11")
        {'?': 2, '!': 1}
    """
    return {call: completion.partition("=")[0].count(call) for call in "?!"}


def paid_per_call(**cost: float) -> Callable[..., list[float]]:
    """A reward: 1 for the right sum, less a price for each call of a tool (`ask`, `calculate`; 0 if not given).

    Example:
        >>> reward = paid_per_call(calculate=0.1)
        >>> reward(["?k4?q7!4711=11"], problem=[Problem("k+q:", "11")])
        [0.9]
    """

    def reward(completions: Sequence[str], problem: Sequence[Problem], **columns: object) -> list[float]:
        used = [calls(text) for text in completions]
        spent = [cost.get("ask", 0.0) * call["?"] + cost.get("calculate", 0.0) * call["!"] for call in used]
        rows = zip(completions, problem, spent, strict=True)
        return [verify_ledger(text, asked) - price for text, asked, price in rows]

    return reward


def ledger_task(rest: str | None = None) -> Task:
    """The task `ledger`, or `ledger:2` with numbers of two digits.

    Raises:
        ValueError: If the text behind the colon is neither 1 nor 2.
    """
    if rest not in (None, "1", "2"):
        raise ValueError(f"unknown task 'ledger:{rest}'; choose ledger or ledger:2, the digits of a number")
    digits = int(rest or 1)
    return Task(
        "ledger" if digits == 1 else "ledger:2",
        "the sum of two numbers that must be asked for",
        "0123456789+:?!=" + KEYS,
        max_new_tokens=(30, 40)[digits - 1],
        make=partial(make_ledger, digits=digits),
        verify=verify_ledger,
        teacher=partial(teach_ledger, digits=digits),
        final=final_sum,
        reply=partial(reply_of_ledger, digits=digits),
        sizes={"heads": 4, "max_length": 64},
    )
