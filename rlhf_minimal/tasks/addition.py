"""Addition, with a teacher who mostly forgets to carry.

Answers are written with the least significant digit first: the answer to 321+654= is 5790, which is 0975 backwards.
The carry then moves in the direction of writing, and a small model can learn it.

The teacher makes a systematic mistake: in four answers of five he drops every carry. A policy that imitates him learns
this mistake, and only training with a verifier corrects it. Random mistakes would leave nothing to correct: the most
likely answer of a policy that imitates them is still the right one.
"""

import random

from rlhf_minimal.tasks.base import Problem, Task

TEACHER_CARRIES = 0.2  # the share of answers in which the teacher carries


def add(a: int, b: int, digits: int, *, carry: bool = True) -> str:
    """The sum in `digits` + 1 digits, least significant first; without `carry`, each column is added on its own.

    Example:
        >>> add(75, 50, 2), add(75, 50, 2, carry=False)
        ('521', '520')
    """
    if carry:
        return f"{a + b:0{digits + 1}d}"[::-1]
    columns = zip(f"{a:0{digits}d}"[::-1], f"{b:0{digits}d}"[::-1], strict=True)
    return "".join(str((int(x) + int(y)) % 10) for x, y in columns) + "0"


def addition(name: str, digits: int) -> Task:
    """The task "add two numbers of `digits` digits"."""

    def make(rng: random.Random) -> Problem:
        a, b = rng.randrange(10**digits), rng.randrange(10**digits)
        return Problem(f"{a:0{digits}d}+{b:0{digits}d}=", add(a, b, digits))

    def teacher(problem: Problem, rng: random.Random) -> str:
        a, b = problem.prompt[:-1].split("+")
        return add(int(a), int(b), digits, carry=rng.random() < TEACHER_CARRIES)

    return Task(
        name=name,
        about=f"{digits}-digit addition, answer least significant digit first",
        alphabet="0123456789+=",
        max_new_tokens=digits + 5,  # an answer and its end token need digits + 2: when to stop has to be learnt, too
        make=make,
        teacher=teacher,
        family=lambda prompt: "+".join(sorted(prompt.rstrip("=").split("+"))),  # 12+34 and 34+12 are one question
    )


ADDITION = addition("addition", digits=3)
ADDITION_2 = addition("addition2", digits=2)
