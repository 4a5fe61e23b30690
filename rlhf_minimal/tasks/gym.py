"""The tasks of the package reasoning-gym, about a hundred generators of problems with their own scorers.

    reasoning-gym:NAME                    reasoning-gym:chain_sum
    reasoning-gym:NAME,key=value,...      reasoning-gym:chain_sum,min_terms=2,max_terms=2,min_digits=1,max_digits=2

The keys are the settings of reasoning-gym's own dataset, except `seed` and `size`: a problem is an index into a dataset
of two thousand million, made when it is drawn, and which index is drawn depends on the run's seed. Making one takes
between 0.01 ms and 0.3 s (knight_swap, futoshiki, zebra_puzzles), and one in ten is held out, so an evaluation on 1000
problems makes ten thousand: with a slow dataset, evaluate on fewer.

The score is what reasoning-gym's `score_answer` says of `final_answer`. Many scorers give a part of the point for an
answer that is close or that holds the right one among other words. That part is the reward; only 1 counts as right.

**No program that a model writes is run.** Nine scorers of reasoning-gym 0.1.25 hand the answer to `eval`, or to
`sympy.parse_expr`, which is `eval` in other clothes: an answer such as `__import__("os").abort()` would be obeyed.
These nine see an answer only if it is written in the characters and words of `READABLE`: lists, sums, and formulas that
can call nothing but elementary functions. Any other answer gets 0. A dataset of another version whose file evaluates
anything, and that is not listed here, is refused.
"""

import dataclasses
import difflib
import inspect
import io
import os
import random
import re
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from functools import lru_cache
from typing import Any

from rlhf_minimal.tasks.base import Problem, Task
from rlhf_minimal.tasks.real import MAX_NEW_TOKENS, final_answer, package_is_missing

INSTRUCTION = "Answer with the result only."

# Items are made when they are asked for, so a dataset may be as large as an index can be, but for these four.
SIZE = 2**31 - 1
SIZES = {"acre": 2_000, "gsm_symbolic": 1_000_000, "list_functions": 1_000_000, "word_ladder": 20_000}

# Generators give up on some indices (maze on one in some hundred); another index is then drawn.
TRIES = 20

_LIST = r"[\d\s\[\],-]*"
_SUM = r"(?!.*\*\*)[\d\s+*/()-]*"
_FORMULA = (
    r"(?:\s|\d{1,9}+(?!\d)(?:\.\d{1,9}+(?!\d))?"  # numbers, not too large
    r"|[A-Za-z](?!\w|\s*\()"  # a variable
    r"|(?:a?sin|a?cos|a?tan|cot|sec|csc|sinh|cosh|tanh|exp|log|ln|sqrt|Abs|pi)(?!\w)"
    r"|\*\*?|[-+/()])*+"
)
# Dataset: the answers that its scorer may evaluate, as a regular expression for all of the answer.
READABLE = {
    "binary_matrix": _LIST,
    "spiral_matrix": _LIST,
    "string_insertion": r"[A-Z\s\[\],'\"]*",
    "n_queens": r"[Q_\s\[\],'\"]*",
    "countdown": _SUM,
    "puzzle24": _SUM,
    "polynomial_multiplication": _FORMULA,
    "simple_integration": _FORMULA,
    "intermediate_integration": _FORMULA,
}
EVALUATES = re.compile(r"(?<![\w.])(?:eval|exec)\(|(?<!\w)(?:parse_expr|sympify)\(")
# Datasets whose files evaluate as well, but only what reasoning-gym itself has written.
TRUSTED = frozenset(("basic_arithmetic", "bitwise_arithmetic", "number_sorting", "propositional_logic"))

REFUSED = {
    "codeio": "it runs other people's programs to make its problems",
    "composite": "it needs a list of other datasets",
    "game_of_life_halting": "its scorer calls every text right",
}
# They draw from sets of texts, whose order is another one in every process.
NEED_HASH_SEED = frozenset(("isomorphic_strings", "list_functions", "polynomial_multiplication", "ransom_note"))


@lru_cache(maxsize=16)  # a task holds its dataset, and is asked for by name more than once in a run
def reasoning_gym_task(text: str) -> Task:
    """A dataset of reasoning-gym as a task.

    Args:
        text: `NAME` or `NAME,key=value,...`; a value is a whole number, a number, `true`, `false` or a word, as the
            setting has it.

    Returns:
        The task; it needs a real model.

    Raises:
        ValueError: If reasoning-gym is not installed, has no such dataset or the dataset no such setting (close names
            are named), a value is of another kind or refused by the dataset, or the dataset is one of `REFUSED`.
    """
    task = f"reasoning-gym:{text}"
    try:
        import reasoning_gym
        from reasoning_gym.factory import DATASETS
    except ImportError as error:
        raise package_is_missing(task, "reasoning-gym") from error
    name, *pairs = (part.strip() for part in text.split(","))
    if name not in DATASETS:
        raise ValueError(f"reasoning-gym has no dataset {name!r}; {_nearest(name, sorted(DATASETS))}")
    if name in REFUSED:
        raise ValueError(f"reasoning-gym's {name} is not offered: {REFUSED[name]}; choose another dataset")
    if name in NEED_HASH_SEED and os.environ.get("PYTHONHASHSEED", "random") == "random":
        raise ValueError(
            f"reasoning-gym's {name} draws other problems in every process, unless Python's hash seed is fixed: set "
            "PYTHONHASHSEED=0 in the environment and start again"
        )
    settings = _settings(task, pairs, DATASETS[name][1])
    size = SIZES.get(name, SIZE)
    try:
        dataset = reasoning_gym.create_dataset(name, seed=0, size=size, **settings)
    except Exception as error:  # datasets assert, and some compare before they look at what they have got
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"reasoning-gym refuses {task}: {reason[:200]}") from error
    _check_scorer(name, dataset)
    readable = re.compile(READABLE[name], re.ASCII | re.DOTALL) if name in READABLE else None

    def make(rng: random.Random) -> Problem:
        reason: Exception | None = None
        for _ in range(TRIES):
            try:
                with redirect_stdout(io.StringIO()):  # bf prints dots
                    entry = dataset[rng.randrange(size)]
            except Exception as error:
                reason = error
                continue
            return Problem(entry["question"], entry["answer"] or "", entry)
        raise ValueError(f"reasoning-gym makes no problem of {task}: {reason!r}")

    def verify(completion: str, problem: Problem) -> float:
        if problem.entry is None:
            raise ValueError("this problem has come without reasoning-gym's entry, so that nobody can score it")
        answer = final_answer(completion)
        if not answer or (readable and not readable.fullmatch(answer)):
            return 0.0
        try:
            return float(dataset.score_answer(answer, problem.entry))
        except Exception:  # some scorers raise over an answer that they cannot read
            return 0.0

    make(random.Random(0))  # settings that make no problem are refused here and now
    return Task(
        name=task,
        about=f"{name} of reasoning-gym{', ' if pairs else ''}{', '.join(pairs)}",
        alphabet="",
        max_new_tokens=MAX_NEW_TOKENS,
        make=make,
        verify=verify,
        instruction=INSTRUCTION,
    )


def _nearest(name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, names, n=3)
    return f"did you mean {' or '.join(near)}?" if near else f"choose one of {', '.join(names)}"


def _settings(task: str, pairs: list[str], config: type) -> dict[str, Any]:
    """The settings in `key=value` form, each in the kind that its default has."""
    fields = {field.name: field for field in dataclasses.fields(config) if field.name not in ("seed", "size")}
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = (part.strip() for part in pair.partition("="))
        if not equals or not text:
            raise ValueError(f"{task}: {pair!r} is no setting; write key=value, with a comma between two of them")
        if key in ("seed", "size"):
            raise ValueError(f"{task}: {key} is not to be set; the run's own seed draws the problems")
        if key not in fields:
            raise ValueError(f"{task} has no setting {key!r}; {_nearest(key, sorted(fields))}")
        if key in found:
            raise ValueError(f"{task} sets {key} twice; take one away")
        found[key] = _value(f"{task}: {key}", text, fields[key].default)
    return found


def _value(what: str, text: str, default: object) -> Any:
    """A text as the kind of value that the default is; where that is none, as the first kind that it can be."""
    words = {"true": True, "false": False}
    if isinstance(default, str):
        return text
    if isinstance(default, bool):
        if text.lower() not in words:
            raise ValueError(f"{what} is {text!r}, and should be true or false")
        return words[text.lower()]
    if default is not None and not isinstance(default, int | float):
        raise ValueError(f"{what} takes more than one value, which cannot be written here; leave it as it is")
    for kind, called in ((int, "a whole number"), (float, "a number")):
        try:
            return kind(text)
        except ValueError:
            if type(default) is kind:
                raise ValueError(f"{what} is {text!r}, and should be {called}") from None
    return words.get(text.lower(), text)


def _check_scorer(name: str, dataset: object) -> None:
    """Refuses a dataset of a version that nobody has read, if its file evaluates something."""
    source = inspect.getsource(sys.modules[type(dataset).__module__])
    if name not in READABLE and name not in TRUSTED and EVALUATES.search(source):
        raise ValueError(
            f"this version of reasoning-gym evaluates texts in {name}, perhaps those of a model; install the version "
            "in requirements.txt, or choose another dataset"
        )
