"""Tasks of the package reasoning-gym: about a hundred generators of problems, each with its own scorer.

    reasoning-gym:NAME                    reasoning-gym:chain_sum
    reasoning-gym:NAME,key=value,...      reasoning-gym:chain_sum,min_terms=2,max_terms=2,min_digits=1,max_digits=2

The keys are the settings of the dataset in reasoning-gym, except `seed` and `size`. A dataset has two thousand million
problems; a problem is made when its index is drawn, and which index is drawn depends on the run's seed. Making a
problem takes between 0.01 ms and 0.3 s (knight_swap, futoshiki and zebra_puzzles are slow). One problem in ten is held
out, so an evaluation on 1000 problems has to make ten thousand: with a slow dataset, evaluate on fewer.

They cannot be listed, so `sft --data` knows a held-out problem by the text that the dataset writes, whatever stands
around it by the rules of `tasks.base.question_core`. One that is spelt in another way is not found: leave rows out that
were made from this dataset and respelt.

The score is that of reasoning-gym's `score_answer` for the completion's `final_answer`. Many scorers give less than 1
to an answer that is close or that holds the right one among other words. This score is the reward; only 1 counts as
right.

**No program that a model writes is run.** Nine scorers of reasoning-gym 0.1.25 pass the answer to `eval`, or to
`sympy.parse_expr`, which calls `eval`: an answer such as `__import__("os").abort()` would be executed. These nine
scorers receive an answer only if it is written with the characters and words of `READABLE`: lists, sums, and formulas
that can call nothing but elementary functions. Any other answer gets 0. In another version of reasoning-gym, a dataset
that is not listed here is refused if its file evaluates texts.
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

from rlhf_minimal.lab.final_answer import MAX_NEW_TOKENS, final_answer
from rlhf_minimal.lab.math_answers import package_is_missing
from rlhf_minimal.tasks.base import Problem, Task, normalised, question_core

INSTRUCTION = "Answer with the result only."

# Problems are made on request, so a dataset can be as large as the largest index. Four datasets are smaller.
SIZE = 2**31 - 1
SIZES = {"acre": 2_000, "gsm_symbolic": 1_000_000, "list_functions": 1_000_000, "word_ladder": 20_000}

# Generators fail for some indices (maze for about one in some hundred). Then another index is drawn, so many at most.
TRIES = 20

_LIST = r"[\d\s\[\],-]*"
_SUM = r"(?!.*\*\*)[\d\s+*/()-]*"
_FORMULA = (
    r"(?>(?:\s|\d{1,9}+(?!\d)(?:\.\d{1,9}+(?!\d))?"  # numbers, not too large
    r"|[A-Za-z](?!\w|\s*\()"  # a variable
    r"|(?:a?sin|a?cos|a?tan|cot|sec|csc|sinh|cosh|tanh|exp|log|ln|sqrt|Abs|pi)(?!\w)"
    r"|\*\*?|[-+/()])*)"
)
# Dataset: a regular expression that the whole answer must match before the scorer may evaluate it.
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
# Datasets whose files evaluate texts, too, but only texts that reasoning-gym itself has written.
TRUSTED = frozenset(("basic_arithmetic", "bitwise_arithmetic", "number_sorting", "propositional_logic"))

REFUSED = {
    "codeio": "it runs other people's programs to make its problems",
    "composite": "it needs a list of other datasets",
    "game_of_life_halting": "its scorer calls every text right",
}
# Datasets that draw from sets of texts; the order of such a set differs between processes.
NEED_HASH_SEED = frozenset(("isomorphic_strings", "list_functions", "polynomial_multiplication", "ransom_note"))


@lru_cache(maxsize=16)  # making a dataset and a first problem takes up to a second
def reasoning_gym_task(text: str) -> Task:
    """A dataset of reasoning-gym as a task.

    Args:
        text: `NAME` or `NAME,key=value,...`; a value is a whole number, a number, `true`, `false` or a word, depending
            on the setting.

    Returns:
        The task; it needs a real model.

    Raises:
        ValueError: If reasoning-gym is not installed; if there is no such dataset, or it has no such setting (the
            message gives similar names); if a value has the wrong type, or the dataset refuses it; if the dataset is
            one of `REFUSED`.
    """
    task = f"reasoning-gym:{text}"
    try:
        import reasoning_gym
        from reasoning_gym.factory import DATASETS
    except ImportError as error:
        raise package_is_missing(task, "reasoning-gym") from error
    name, *pairs = (piece.strip() for piece in text.split(","))
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
    except Exception as error:  # datasets use assert, and some compare values before they check their types
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"reasoning-gym refuses {task}: {reason[:200]}") from error
    _check_scorer(name, dataset)
    readable = re.compile(READABLE[name], re.ASCII | re.DOTALL) if name in READABLE else None

    def make(rng: random.Random) -> Problem:
        reason: Exception | None = None
        for _ in range(TRIES):
            try:
                with redirect_stdout(io.StringIO()):  # the dataset bf prints dots
                    entry = dataset[rng.randrange(size)]
            except Exception as error:
                reason = error
                continue
            return Problem(entry["question"], entry["answer"] or "", entry)
        raise ValueError(f"reasoning-gym cannot make a problem of {task}: {reason!r}")

    def verify(completion: str, problem: Problem) -> float:
        if problem.entry is None:
            raise ValueError(
                "this problem has no reasoning-gym entry, so it cannot be scored; use one that the task made"
            )
        answer = final_answer(completion)
        if not answer or (readable and not readable.fullmatch(answer)):
            return 0.0
        try:
            return float(dataset.score_answer(answer, problem.entry))
        except Exception:  # some scorers raise an error for an answer that they cannot read
            return 0.0

    first = make(random.Random(0)).prompt  # raises an error now, not during the run, if the settings give no problem
    # What a dataset writes around each of its questions belongs to them here, as it did when runs were recorded.
    before, _, behind = normalised(first).partition(question_core(first))
    return Task(
        name=task,
        about=f"{name} of reasoning-gym{', ' if pairs else ''}{', '.join(pairs)}",
        alphabet="",
        max_new_tokens=MAX_NEW_TOKENS,
        make=make,
        verify=verify,
        instruction=INSTRUCTION,
        family=lambda question: f"{before}{question}{behind}",
    )


def _nearest(name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, names, n=3)
    return f"did you mean {' or '.join(near)}?" if near else f"choose one of {', '.join(names)}"


def _settings(task: str, pairs: list[str], config: type) -> dict[str, Any]:
    """Settings from texts of the form `key=value`; each value gets the type of the setting's default."""
    fields = {field.name: field for field in dataclasses.fields(config) if field.name not in ("seed", "size")}
    settings: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = (piece.strip() for piece in pair.partition("="))
        if not equals or not text:
            raise ValueError(f"{task}: {pair!r} is not a setting; write key=value, and commas between settings")
        if key in ("seed", "size"):
            raise ValueError(f"{task}: {key} cannot be set; the run's own seed draws the problems")
        if key not in fields:
            raise ValueError(f"{task} has no setting {key!r}; {_nearest(key, sorted(fields))}")
        if key in settings:
            raise ValueError(f"{task} sets {key} twice; remove one of the two")
        settings[key] = _value(f"{task}: {key}", text, fields[key].default)
    return settings


def _value(what: str, text: str, default: object) -> Any:
    """A text as a value of the default's type; if the default is None, of the first type that fits."""
    words = {"true": True, "false": False}
    if isinstance(default, str):
        return text
    if isinstance(default, bool):
        if text.lower() not in words:
            raise ValueError(f"{what} is {text!r}, and should be true or false")
        return words[text.lower()]
    if default is not None and not isinstance(default, int | float):
        raise ValueError(f"{what} takes more than one value, which cannot be written here; leave this setting out")
    for kind, called in ((int, "a whole number"), (float, "a number")):
        try:
            return kind(text)
        except ValueError:
            if type(default) is kind:
                raise ValueError(f"{what} is {text!r}, and should be {called}") from None
    return words.get(text.lower(), text)


def _check_scorer(name: str, dataset: object) -> None:
    """Refuses a dataset whose file evaluates texts, if it is not listed here: its code has not been reviewed."""
    source = inspect.getsource(sys.modules[type(dataset).__module__])
    if name not in READABLE and name not in TRUSTED and EVALUATES.search(source):
        raise ValueError(
            f"this version of reasoning-gym evaluates texts in {name}, perhaps those of a model; install the version "
            "in requirements.txt, or choose another dataset"
        )
