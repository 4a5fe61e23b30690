"""Addition, with a teacher who never carries.

Answers are written least significant digit first (321+654= is answered 5790, that is 0975 read backwards): the carry
then travels in the direction of writing, and a small model can learn it.

The teacher is where reinforcement learning gets its work. One who was merely sloppy would make no difference, since a
policy that imitates random slips still has the truth as its most likely answer. This one makes a systematic mistake:
in four answers of five he drops every carry. Imitation learns the mistake faithfully; only a verifier can mend it.
"""

import random

from rlhf_minimal.tasks.base import Problem, Task

TEACHER_CARRIES = 0.2  # the share of answers in which the teacher remembers to carry


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
        max_new_tokens=digits + 5,  # the answer with its end needs digits + 2: ending in time is learnt, too
        make=make,
        teacher=teacher,
        family=lambda prompt: "+".join(sorted(prompt.rstrip("=").split("+"))),  # 12+34 and 34+12 are one question
    )


ADDITION = addition("addition", digits=3)
ADDITION_2 = addition("addition2", digits=2)
