"""Tasks: problems with a verifier. To add a task, write one `Task(...)` and one line in `TASKS`.

There are also families of tasks (`FAMILIES`), most of them for real models. A name of such a task is the family's
name, a colon, and a text that says which task of the family is meant.
"""

from collections.abc import Callable

from rlhf_minimal.tasks.arithmetic import ADDITION, ADDITION_2
from rlhf_minimal.tasks.base import Problem, Step, Task
from rlhf_minimal.tasks.clock import CLOCK, CLOCK_10, clock_task
from rlhf_minimal.tasks.digits import EVEN, REVERSE
from rlhf_minimal.tasks.guard import Scored, VerifierWarning, score_all, verify_all
from rlhf_minimal.tasks.gym import reasoning_gym_task
from rlhf_minimal.tasks.own import exact_task, math_task
from rlhf_minimal.tasks.reviews import REVIEWS
from rlhf_minimal.tasks.rewards import (
    RewardFunction,
    StepReward,
    checked_steps,
    model_reward,
    random_reward,
    verifier_reward,
)
from rlhf_minimal.tasks.rows import CompletionRow, PairRow, StepRow, TextRow, hold_out, read_rows, write_rows
from rlhf_minimal.tasks.stack import STACK, stack_task

_SHIPPED = (ADDITION, ADDITION_2, CLOCK, CLOCK_10, REVERSE, EVEN, STACK, REVIEWS)
TASKS: dict[str, Task] = {task.name: task for task in _SHIPPED}

# The name of a family, and the function that makes a task from the text after the colon.
FAMILIES: dict[str, Callable[[str], Task]] = {
    "clock": clock_task,
    "stack": stack_task,
    "reasoning-gym": reasoning_gym_task,
    "exact": exact_task,
    "math": math_task,
}
OF_FAMILIES = ["clock:long", "clock:slip", "clock:key=value,...", "stack:tests=visible"]
OF_FAMILIES += ["reasoning-gym:NAME,key=value,..."]
TASK_NAMES = ", ".join([*TASKS, *OF_FAMILIES, "exact:FILE.jsonl", "math:FILE.jsonl"])


def get_task(name: str) -> Task:
    """The task of that name.

    Args:
        name: One of `TASKS`, or `clock:long`, `clock:slip`, `clock:key=value,...` (`tasks.clock`),
            `stack:tests=visible` (`tasks.stack`), `reasoning-gym:NAME`, `reasoning-gym:NAME,key=value,...`
            (`tasks.gym`), `exact:FILE.jsonl`, `math:FILE.jsonl` (`tasks.own`).

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
    "RewardFunction",
    "Scored",
    "Step",
    "StepReward",
    "StepRow",
    "Task",
    "TextRow",
    "VerifierWarning",
    "checked_steps",
    "get_task",
    "hold_out",
    "model_reward",
    "random_reward",
    "read_rows",
    "score_all",
    "verifier_reward",
    "verify_all",
    "write_rows",
]
