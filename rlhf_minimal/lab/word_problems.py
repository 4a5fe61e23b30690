r"""Questions in words with a worked answer: GSM8K's form, MATH's form, and any file with questions and answers.

                                a row of the file                                   a completion is right if
    gsm8k:FILE.jsonl            {"question": "...", "answer": "... #### 18"}        it says #### and this number
    gsm8k-lenient:FILE.jsonl    the same                                            its last number is this one
    competition-math:FILE.jsonl {"problem": "...", "solution": "... \\boxed{x}"}    its last box is worth the same
    qa:FILE.jsonl               {"question": "...", "answer": "Paris"}              its answer is this text or number

One file is split: one question in ten is held out, by a checksum. Two files, `gsm8k:TRAIN.jsonl,TEST.jsonl`, are
training and evaluation as their authors meant it; what stands in both is left out of training and counted.

**What is not an answer is counted, not guessed.** A row whose answer cannot be read is left out, and so is a question
that stands in a file with two answers; the task's line `about` says how many. A completion without an answer has none
(`Task.final` gives None) and gets 0, and `evaluate` prints how many there are. Strictly, that is a completion without
`####`, with something other than a number behind it, or with two different numbers behind two of them; in MATH's form,
one whose last box is missing, empty, never closed, or an operand. Leniently, it is a completion without a number. The
two scores differ by what a model has learnt of the form alone, so a gain is told in both.
"""

import operator
import os
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from rlhf_minimal.lab.final_answer import final_answer
from rlhf_minimal.lab.jsonl import FEWEST, listed_task, question_key, texts_of
from rlhf_minimal.lab.math_answers import boxed, check_math_verify, in_last_box, plain_signs, same_answer
from rlhf_minimal.lab.rows import numbered
from rlhf_minimal.tasks.base import Problem, Task, falls_on_held_out_side, normalised, question_core

_SIGNS = r"(?:(?<![\w)])[-\u2212])?(?:[$\u20ac\u00a3]\s?)?"  # a minus is none between two numbers, as in 5-3
_NUMBER = _SIGNS + r"(?<![\d.,])(?:\d{1,3}(?:,\d{3})+|\d{1,30})(?:\.\d{1,30})?(?!\d|,\d)"
_LAST = re.compile(_NUMBER, re.ASCII)
_MARKED = re.compile(rf"[ \t]*({_NUMBER})\s*[.%]?\s*", re.ASCII)  # what may stand behind ####
_NOTE = re.compile(r"<<[^<>]*>>")  # GSM8K's notes for a calculator, <<48/2=24>>


def number(text: str) -> str | None:
    """A number in one way of writing, so that 1,200 and $1200.00 are equal; None for what is no number.

    Example:
        >>> number("$1,200.50"), number("-3"), number("1200.00"), number("3 or 4")
        ('2401/2', '-3', '1200', None)
    """
    text = text.strip().replace("\u2212", "-")
    return str(Fraction(re.sub(r"[^\d.-]", "", text))) if _LAST.fullmatch(text) else None


def strict(completion: str) -> str | None:
    """The number behind `####`; None if there is none, or another text, or if two of them differ.

    Example:
        >>> strict("48 + 24 = 72. #### 72"), strict("It is 72."), strict("#### 72 or so"), strict("#### 7 #### 8")
        ('72', None, None, None)
    """
    lines = [part for line in completion.split("\n") for part in line.split("####")[1:]]
    found = {number(behind[1]) if (behind := _MARKED.fullmatch(part)) else None for part in lines}
    return found.pop() if len(found) == 1 else None


def lenient(completion: str) -> str | None:
    """The last number of a completion, wherever it stands; None if there is none.

    Example:
        >>> lenient("So she has 5-3 = 2 apples."), lenient("#### 1,200"), lenient("no idea")
        ('2', '1200', None)
    """
    found = _LAST.findall(completion)
    return number(found[-1]) if found else None


def _box(completion: str) -> str | None:
    text = final_answer(completion)
    return in_last_box(text).strip() or None if "\\boxed" in text else None


def _boxed(completion: str) -> str | None:
    return boxed(plain_signs(final_answer(completion))).strip() or None


def _same_value(one: str, other: str) -> bool:
    return same_answer(rf"\boxed{{{one}}}", rf"\boxed{{{other}}}")


def _text(completion: str) -> str | None:
    text = normalised(final_answer(completion))
    return number(text) or text or None


@dataclass(frozen=True)
class _Form:
    """How a file is written, and how an answer is read and compared: the file's own by `gold`, others by `final`."""

    question: str
    answer: str
    instruction: str
    gold: Callable[[str], str | None]
    final: Callable[[str], str | None]
    budget: int
    same: Callable[[str, str], bool] = operator.eq


_SAY = "Reason step by step. Write the result as a number in the last line, behind ####."
_BOX = r"Reason step by step. Write the result in \boxed{}."
FORMS = {
    "gsm8k": _Form("question", "answer", _SAY, strict, strict, 256),
    "gsm8k-lenient": _Form("question", "answer", _SAY, strict, lenient, 256),
    "competition-math": _Form("problem", "solution", _BOX, _box, _boxed, 512, _same_value),
    "qa": _Form("question", "answer", "Answer with the result only.", _text, _text, 64),
}


def gsm8k_task(files: str) -> Task:
    """GSM8K's form, strict: `FILE.jsonl`, or `TRAIN.jsonl,TEST.jsonl`.

    Args:
        files: JSON lines with the columns `question` and `answer`, which ends with `####` and a number.

    Returns:
        The task; it needs a real model. `sft` imitates the worked answers, without GSM8K's notes for a calculator.

    Raises:
        ValueError: If a file cannot be read or a column is missing; if half of its rows or more have no readable
            answer; if fewer than `FEWEST` questions are left, or none to train or to measure on. The message names the
            file and the row, and says what to do.
    """
    return _task("gsm8k", files)


def gsm8k_lenient_task(files: str) -> Task:
    """As `gsm8k_task`, but the completion's last number counts, wherever it stands."""
    return _task("gsm8k-lenient", files)


def competition_math_task(files: str) -> Task:
    r"""MATH's form: `problem` and `solution`, whose last `\boxed{...}` is the answer.

    Equal are the same text and what math-verify finds equal, as in `math:`. An answer that is no formula, such as
    ``\text{Tuesday}``, is right as the same text.

    Args:
        files: As for `gsm8k_task`.

    Raises:
        ValueError: As from `gsm8k_task`; if math-verify is not installed.
    """
    check_math_verify(f"competition-math:{files}")
    return _task("competition-math", files)


def qa_task(files: str) -> Task:
    """Any `question` and `answer`: right is the same text, its white space aside, or the same number."""
    return _task("qa", files)


def _task(kind: str, files: str) -> Task:
    form, name, left_out = FORMS[kind], f"{kind}:{files}", Counter[str]()
    paths = [path.strip() for path in files.split(",")]
    if len(paths) > 2 or not all(paths):
        raise ValueError(f"{name}: give {kind}:FILE.jsonl, or {kind}:TRAIN.jsonl,TEST.jsonl")
    train, *more = (_problems(path, form, left_out) for path in paths)
    measured = more[0] if more else [p for p in train if falls_on_held_out_side(normalised(p.prompt))]
    held_out = {question_core(problem.prompt) for problem in measured}
    kept = [problem for problem in train if question_core(problem.prompt) not in held_out]
    if more:
        left_out[f"questions of {os.path.basename(paths[0])}: they stand in {os.path.basename(paths[1])}, too"] += len(
            train
        ) - len(kept)
    if len(kept) + len(measured) < FEWEST:
        raise ValueError(f"{name} has {len(kept) + len(measured)} questions; it needs at least {FEWEST}, so add rows")

    @cache  # a question is drawn many times, and its side is found by trying
    def family(prompt: str) -> str:
        key = question_core(prompt)
        return _on_side(key, held_out=key in held_out)

    def make(rng: random.Random) -> Problem:
        return rng.choice(measured if rng.random() < 0.1 else kept)

    def verify(completion: str, problem: Problem) -> float:
        found = form.final(completion)
        return float(found is not None and form.same(found, problem.answer))

    about = f"{len(kept) + len(measured)} questions of {' and '.join(map(os.path.basename, paths))}"
    return listed_task(
        name,
        files,
        [*kept, *measured],
        about="; ".join([about, *(f"left out: {n} {what}" for what, n in left_out.items() if n)]),
        max_new_tokens=form.budget,
        make=make,
        verify=verify,
        teacher=lambda problem, _: str(problem.entry),
        family=family,
        instruction=form.instruction,
        final=form.final,
    )


def _on_side(key: str, *, held_out: bool) -> str:
    """A text for a question that falls on the side that its file says: what follows it is counted up until it does."""
    return next(text for i in range(1000) if falls_on_held_out_side(text := f"{key} ({i})") == held_out)


def _problems(file: str, form: _Form, left_out: Counter[str]) -> list[Problem]:
    """The questions of a file, each once, and none that has two answers; what is left out is counted."""
    found: dict[tuple[str, ...], Problem] = {}
    unclear, unread, rows = set[tuple[str, ...]](), 0, 0
    for rows, (where, raw) in enumerate(numbered(file), start=1):  # noqa: B007 (counted)
        try:
            question, answer = texts_of(raw, form.question, form.answer)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
        if (gold := form.gold(answer)) is None:
            unread += 1
            continue
        key = question_key(question)
        known = found.setdefault(key, Problem(question, gold, _NOTE.sub("", answer)))
        if not form.same(gold, known.answer):
            unclear.add(key)
    if 2 * unread >= rows:
        raise ValueError(
            f"{file}: {unread} of {rows} rows have no answer that this form can read; is it written in another form? "
            f"There are {', '.join(FORMS)}"
        )
    left_out["rows without a readable answer"] += unread
    left_out["questions with two answers"] += len(unclear)
    return [problem for key, problem in found.items() if key not in unclear]
