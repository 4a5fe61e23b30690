"""Two smaller tasks on strings of digits: one that needs a supervised start and one that needs nothing."""

import random

from rlhf_minimal.tasks.base import Problem, Task


def _reverse_problem(rng: random.Random) -> Problem:
    digits = f"{rng.randrange(10**4):04d}"
    return Problem(f"{digits}>", digits[::-1])


def _reverse_teacher(problem: Problem, rng: random.Random) -> str:
    # A systematic mistake again: four answers in five are copied in reading order.
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
    # One to three digits: prompts of different lengths, so that left padding is met in everyday use.
    return Problem(f"{rng.randrange(10 ** rng.randint(1, 3))}:", "an even digit")


def _is_even_digit(completion: str, problem: Problem) -> float:
    return float(completion[:1] in tuple("02468"))


# The smallest task there is: an untrained model is right about four times in ten, and a few seconds of any algorithm
# make it right nearly always. It exists so that "every row learns" can be a test.
EVEN = Task(
    name="even",
    about="begin the answer with an even digit",
    alphabet="0123456789:",
    max_new_tokens=4,
    make=_even_problem,
    verify=_is_even_digit,
)
