"""Prompts and answers of one's own, from a JSON-lines file.

    exact:FILE.jsonl    {"prompt": "Which word ...?", "answer": "yes"}     the same text, white space around it aside
    math:FILE.jsonl     {"prompt": "Simplify ...", "answer": "x^2/2"}      the same value (`tasks.formulas`)

`math:` takes answers in LaTeX, in dollars or without, or as plain expressions of numbers. It compares values: where the
prompt asks for 17 * 23, the completion `17 * 23` is right in its eyes. Where the working is the point, take `exact:`.

The file is split as every task is: one prompt in ten is held out, by a checksum of its text as a reader sees it
(`base.normalised`). A prompt that stands twice counts once, however its white space and its accents are written.
"""

import os
import random
import re
import unicodedata
from functools import lru_cache

from rlhf_minimal.tasks.base import Problem, Task, normalised
from rlhf_minimal.tasks.formulas import check_math_verify, read_answer, same_formula
from rlhf_minimal.tasks.real import MAX_NEW_TOKENS
from rlhf_minimal.tasks.rows import check_filled, numbered, text_of

FEWEST = 10  # different prompts


def exact_task(file: str) -> Task:
    """A file of prompts whose answers are to be given to the letter.

    Args:
        file: JSON lines with the columns `prompt` and `answer`; other columns are left alone.

    Returns:
        The task; it needs a real model.

    Raises:
        ValueError: Naming file and row (the first is row 1) and what to do, if the file cannot be read, a column is
            missing, no text or empty, or one prompt has two answers; if there are fewer than `FEWEST` prompts, or one
            side of the wall between training and evaluation has none.
    """
    return _task("exact", file, *_stamp(file))


def math_task(file: str) -> Task:
    """A file of prompts whose answers are mathematics.

    Args:
        file: As for `exact_task`.

    Returns:
        The task; it needs a real model.

    Raises:
        ValueError: As from `exact_task`; if math-verify cannot read an answer, or is not installed.
    """
    check_math_verify(f"math:{file}")
    return _task("math", file, *_stamp(file))


def _stamp(file: str) -> tuple[int, int]:
    """What tells whether a file has changed."""
    try:
        status = os.stat(file)
    except (OSError, ValueError):
        return 0, 0  # reading it will say what is wrong
    return status.st_mtime_ns, status.st_size


@lru_cache(maxsize=8)  # a run asks for its task by name more than once, and reading thousands of formulas takes seconds
def _task(kind: str, file: str, *stamp: int) -> Task:
    problems = _problems(kind, file)

    def make(rng: random.Random) -> Problem:
        return rng.choice(problems)

    def exact(completion: str, problem: Problem) -> float:
        return float(completion.strip() == problem.answer.strip())

    def formula(completion: str, problem: Problem) -> float:
        return float(same_formula(completion, problem.answer))

    task = Task(
        name=f"{kind}:{file}",
        about=f"{len(problems)} prompts of {os.path.basename(file)}",
        alphabet="",
        max_new_tokens=MAX_NEW_TOKENS,
        make=make,
        verify=formula if kind == "math" else exact,
        family=normalised,
    )
    held_out = sum(task.is_held_out(problem.prompt) for problem in problems)
    if held_out in (0, len(problems)):
        empty = "evaluation" if held_out == 0 else "training"
        raise ValueError(
            f"{file}: none of the {len(problems)} prompts is left for {empty} (one in ten is held out, by a checksum "
            "of its text); add more rows"
        )
    return task


def _question(prompt: str) -> tuple[str, ...]:
    """What makes two prompts one question: what a reader sees, and which of it stands higher or lower (2², not 22)."""
    raised = [c for c in prompt if unicodedata.decomposition(c).startswith(("<super>", "<sub>", "<fraction>"))]
    return normalised(prompt), *raised


def _problems(kind: str, file: str) -> list[Problem]:
    """The rows of a file, each prompt once."""
    found: dict[tuple[str, ...], tuple[str, Problem]] = {}
    for where, raw in numbered(file):
        try:
            if not isinstance(raw, dict):
                raise ValueError(f"expected an object with named columns; got {type(raw).__name__}")
            prompt, answer = text_of(raw, "prompt"), text_of(raw, "answer")
            check_filled("prompt", prompt, "remove the row, or write what the model is asked")
            check_filled("answer", answer, "remove the row, or write what is right")
            if re.search(r"[\ud800-\udfff]", prompt + answer):
                raise ValueError("prompt or answer holds half a character (a lone surrogate); correct it")
            first, one = found.setdefault(_question(prompt), (where, Problem(prompt, answer)))
            if one.answer.strip() != answer.strip() and not (kind == "math" and same_formula(answer, one.answer)):
                raise ValueError(
                    f"the prompt is that of {first}, and the answer is another ({answer!r}, not {one.answer!r}); "
                    "remove one of the two"
                )
            if kind == "math" and not read_answer(answer):
                raise ValueError(
                    f"the answer {answer!r} is no formula that math-verify reads; write it as a number or in LaTeX "
                    "without sums, integrals or names of operators, or take exact: instead of math:"
                )
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
    if len(found) < FEWEST:
        raise ValueError(f"{file} has {len(found)} different prompts; it needs at least {FEWEST}, so add rows")
    return [problem for _, problem in found.values()]
