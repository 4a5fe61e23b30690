"""Two smaller tasks on strings of digits: one needs a supervised start, the other can begin with random weights."""

import random

from rlhf_minimal.tasks.base import Problem, Task


def _reverse_problem(rng: random.Random) -> Problem:
    digits = f"{rng.randrange(10**4):04d}"
    return Problem(f"{digits}>", digits[::-1])


def _reverse_teacher(problem: Problem, rng: random.Random) -> str:
    # A systematic mistake, as in addition: four answers in five repeat the digits without reversing them.
    return problem.answer if rng.random() < 0.2 else problem.prompt[:-1]


REVERSE = Task(
    name="reverse",
    about="write four digits backwards",
    alphabet="0123456789>",
    max_new_tokens=8,
    make=_reverse_problem,
    teacher=_reverse_teacher,
)


def _even_problem(rng: random.Random) -> Problem:
    # One to three digits: prompts differ in length, so ordinary runs use left padding.
    return Problem(f"{rng.randrange(10 ** rng.randint(1, 3))}:", "an even digit")


def _is_even_digit(completion: str, problem: Problem) -> float:
    return float(completion[:1] in tuple("02468"))


# The smallest task: an untrained model is right about four times in ten, and after a few seconds of training with any
# algorithm it is right nearly always. With it, a test can check that every row learns.
EVEN = Task(
    name="even",
    about="begin the answer with an even digit",
    alphabet="0123456789:",
    max_new_tokens=4,
    make=_even_problem,
    verify=_is_even_digit,
)
