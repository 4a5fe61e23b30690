"""Your own prompts and answers, from a JSON-lines file.

                        a row of the file                                  a completion is right if it is
    exact:FILE.jsonl    {"prompt": "Which word ...?", "answer": "yes"}     nothing but this text, and space around it
    math:FILE.jsonl     {"prompt": "Simplify ...", "answer": "x^2/2"}      of the same value (`lab.math_answers`)

`exact:` compares the whole completion: `<answer>yes</answer>` and a `yes` after some reasoning are wrong. So a model
learns to write the answer alone. If it may reason first, use `math:`, which looks at the completion's `final_answer`
only, or write a task of your own whose verifier calls `lab.final_answer.final_answer`.

`math:` takes answers in LaTeX, with or without dollars, or as plain expressions of numbers. A completion may put units,
a label, quotes, HTML or JSON around its answer; one that it denies, guesses or only bounds is not paid, nor is one that
cannot be told from such a one (`lab.math_answers.same_answer`). It compares values: if the
prompt asks for 17 * 23, the completion `17 * 23` counts as right. If the model has to work out the result, use
`exact:`.

The file is split as in every task: one prompt in ten is held out, by a checksum of what it asks, however it is spelt
(`questions.same_question`). A prompt that occurs twice counts once, even if its white space or its accents are written
in two ways.
"""

import json
import os
import re
import unicodedata
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from rlhf_minimal.lab.final_answer import MAX_NEW_TOKENS
from rlhf_minimal.lab.questions import same_question
from rlhf_minimal.lab.rows import numbered
from rlhf_minimal.tasks import WORDED
from rlhf_minimal.tasks.base import Problem, Task, normalised
from rlhf_minimal.tasks.rows import check_filled, text_of

FEWEST = 10  # smallest number of different prompts in a file


def exact_task(file: str) -> Task:
    """A task from a file of prompts: a completion is right if the whole of it is the same text as the answer.

    Args:
        file: JSON lines with the columns `prompt` and `answer`; other columns are ignored.

    Returns:
        The task; it needs a real model.

    Raises:
        ValueError: If the file cannot be read; if a column is missing, empty or not a text; if one prompt has two
            answers; if there are fewer than `FEWEST` prompts; if all prompts belong to training, or all to evaluation.
            The message names the file and the row (the first is row 1) and says what to do.
    """
    return rows_task("exact", file, lambda completion, problem: float(completion.strip() == problem.answer.strip()))


def rows_task(
    kind: str,
    file: str,
    verify: Callable[[str, Problem], float],
    *,
    check_answer: Callable[[str], None] = lambda answer: None,
    same: Callable[[str, str], bool] = lambda one, other: False,
) -> Task:
    """A task from a file of prompts with their answers.

    Args:
        kind: The family's name, for the task's own.
        file: As for `exact_task`.
        verify: (completion, problem) -> 1.0 where it is right, else 0.0.
        check_answer: Raises a ValueError about an answer that `verify` could not compare with.
        same: Whether two answers to one prompt, which are not the same text, are the same all the same.

    Raises:
        ValueError: As from `exact_task`.
    """
    problems = _problems(file, check_answer, same)
    return listed_task(
        f"{kind}:{file}",
        file,
        problems,
        about=f"{len(problems)} prompts of {os.path.basename(file)}",
        make=lambda rng: rng.choice(problems),
        verify=verify,
    )


def files_of(name: str) -> list[str]:
    """The files of problems that a task's name names, as they are written there; none for any other task.

    Example:
        >>> files_of("exact:q.jsonl"), files_of("gsm8k:train.jsonl,test.jsonl"), files_of("addition")
        (['q.jsonl'], ['train.jsonl', 'test.jsonl'], [])
    """
    kind, _, rest = name.partition(":")
    return [path.strip() for path in rest.split(",")] if kind in WORDED else [rest] * (kind in ("exact", "math"))


def listed_task(name: str, files: str, problems: Sequence[Problem], **settings: Any) -> Task:
    """A task for real models whose problems are known one by one.

    Args:
        name: Its name, which begins with its kind and a colon.
        files: Where the problems come from, for the message.
        problems: All of them.
        settings: Of `Task`; one in ten families of prompts that look alike is held out, if they do not say otherwise.

    Raises:
        ValueError: If all prompts belong to training, or all to evaluation.
    """
    content = json.dumps([(p.prompt, p.answer) for p in problems]).encode()
    draws = f"{name.partition(':')[0]}:{zlib.crc32(content)}"
    own: dict[str, Any] = {"alphabet": "", "max_new_tokens": MAX_NEW_TOKENS, "family": same_question, **settings}
    task = Task(name=name, listed=tuple(problems), draws=draws, **own)
    held_out = sum(task.is_held_out(problem.prompt) for problem in problems)
    if held_out in (0, len(problems)):
        empty = "evaluation" if held_out == 0 else "training"
        raise ValueError(
            f"{files}: none of the {len(problems)} prompts is left for {empty} (one in ten is held out, by a checksum "
            "of its text); add more rows"
        )
    return task


def question_key(prompt: str) -> tuple[str, ...]:
    """Equal for prompts that ask the same: the text as a reader sees it, and its raised or lowered characters.

    Without the latter, 2² and 22 would be the same.
    """
    raised = [c for c in prompt if unicodedata.decomposition(c).startswith(("<super>", "<sub>", "<fraction>"))]
    return normalised(prompt), *raised


def texts_of(raw: object, question: str, answer: str) -> tuple[str, str]:
    """The texts in two columns of a row.

    Raises:
        ValueError: If it is no row with both columns, if one is not a text, or if the question is empty.
    """
    if not isinstance(raw, dict):
        raise ValueError(f"expected an object with named columns; got {type(raw).__name__}")
    asked, answered = text_of(raw, question), text_of(raw, answer)
    check_filled(question, asked, "remove the row, or write what the model is asked")
    if re.search(r"[\ud800-\udfff]", asked + answered):
        raise ValueError(f"{question} or {answer} holds half a character (a lone surrogate); correct it")
    return asked, answered


def _problems(file: str, check_answer: Callable[[str], None], same: Callable[[str, str], bool]) -> list[Problem]:
    """The rows of a file, each prompt once."""
    by_question: dict[tuple[str, ...], tuple[str, Problem]] = {}
    for where, raw in numbered(file):
        try:
            prompt, answer = texts_of(raw, "prompt", "answer")
            check_filled("answer", answer, "remove the row, or write the right answer")
            first, known = by_question.setdefault(question_key(prompt), (where, Problem(prompt, answer)))
            if known.answer.strip() != answer.strip() and not same(answer, known.answer):
                raise ValueError(
                    f"the prompt is the same as in {first}, but the answer differs ({answer!r}, not "
                    f"{known.answer!r}); remove one of the two rows"
                )
            check_answer(answer)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
    if len(by_question) < FEWEST:
        raise ValueError(f"{file} has {len(by_question)} different prompts; it needs at least {FEWEST}, so add rows")
    return [problem for _, problem in by_question.values()]
