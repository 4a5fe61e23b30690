"""Tasks: problems with a verifier. To add a task, write one `Task(...)` and one line in `TASKS`.

There are also families of tasks (`FAMILIES`), most of them for real models. A name of such a task is the family's
name, a colon, and a text that says which task of the family is meant.
"""

import importlib
from collections.abc import Callable
from typing import cast

from rlhf_minimal.tasks.addition import ADDITION, ADDITION_2
from rlhf_minimal.tasks.base import Problem, Step, Task
from rlhf_minimal.tasks.clock import CLOCK, CLOCK_10, clock_task
from rlhf_minimal.tasks.digits import EVEN, REVERSE
from rlhf_minimal.tasks.reviews import REVIEWS
from rlhf_minimal.tasks.rewards import (
    RewardFunction,
    StepReward,
    checked_steps,
    model_reward,
    random_reward,
    verifier_reward,
)
from rlhf_minimal.tasks.rows import CompletionRow, PairRow, ReplyRow, completion_rows
from rlhf_minimal.tasks.scoring import Scored, score_all, verify_all
from rlhf_minimal.timeouts import VerifierWarning

_SHIPPED = (ADDITION, ADDITION_2, CLOCK, CLOCK_10, REVERSE, EVEN, REVIEWS)
TASKS: dict[str, Task] = {task.name: task for task in _SHIPPED}

# The name of a family, and the function that makes a task from the text after the colon.
FAMILIES: dict[str, Callable[[str], Task]] = {"clock": clock_task}
# Families that stand outside of the core: they are imported when a task of theirs is asked for. Some names stand alone.
LAB = {
    "exact": "rlhf_minimal.lab.jsonl:exact_task",
    "ledger": "rlhf_minimal.lab.ledger:ledger_task",
    "math": "rlhf_minimal.lab.math_answers:math_task",
    "reasoning-gym": "rlhf_minimal.lab.gym:reasoning_gym_task",
    "stack": "rlhf_minimal.lab.stack:stack_task",
}
WORDED = ("gsm8k", "gsm8k-lenient", "competition-math", "qa")
LAB |= {name: f"rlhf_minimal.lab.word_problems:{name.replace('-', '_')}_task" for name in WORDED}
ALONE = ("ledger", "stack")
OF_FAMILIES = ["clock:long", "clock:slip", "clock:key=value,...", "stack:tests=visible"]
OF_FAMILIES += ["ledger:2", "reasoning-gym:NAME,key=value,...", *(f"{name}:FILE.jsonl" for name in WORDED)]
TASK_NAMES = ", ".join([*TASKS, *ALONE, *OF_FAMILIES, "exact:FILE.jsonl", "math:FILE.jsonl"])


def get_task(name: str) -> Task:
    """The task of that name.

    Args:
        name: One of `TASKS`, `ledger`, `stack`, or `clock:long`, `clock:slip`, `clock:key=value,...` (`tasks.clock`),
            `ledger:2` (`lab.ledger`), `stack:tests=visible` (`lab.stack`), `reasoning-gym:NAME`,
            `reasoning-gym:NAME,key=value,...` (`lab.gym`), `gsm8k:FILE.jsonl` and its like (`lab.word_problems`),
            `exact:FILE.jsonl` (`lab.jsonl`), `math:FILE.jsonl` (`lab.math_answers`).

    Raises:
        ValueError: If there is no task of that name; the message lists the names. If a task of a family cannot be
            made; the message says why.

    Example:
        >>> get_task("addition").problems("held_out", 1, seed=0)[0].prompt[3]
        '+'
    """
    family, colon, rest = name.partition(":")
    if colon and family in FAMILIES:
        return FAMILIES[family](rest)
    if family in LAB and (colon or name in ALONE):
        module, _, function = LAB[family].partition(":")
        return cast(Task, getattr(importlib.import_module(module), function)(rest if colon else None))
    if name not in TASKS:
        raise ValueError(f"unknown task {name!r}; choose one of {TASK_NAMES}")
    return TASKS[name]


__all__ = [
    "FAMILIES",
    "TASKS",
    "TASK_NAMES",
    "CompletionRow",
    "PairRow",
    "Problem",
    "ReplyRow",
    "RewardFunction",
    "Scored",
    "Step",
    "StepReward",
    "Task",
    "VerifierWarning",
    "checked_steps",
    "completion_rows",
    "get_task",
    "model_reward",
    "random_reward",
    "score_all",
    "verifier_reward",
    "verify_all",
]
