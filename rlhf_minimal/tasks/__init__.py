"""Things to learn: problems with a verifier. A new task is one `Task(...)` and one line in `TASKS`."""

from rlhf_minimal.tasks.arithmetic import ADDITION, ADDITION_2
from rlhf_minimal.tasks.base import Problem, Task
from rlhf_minimal.tasks.digits import EVEN, REVERSE
from rlhf_minimal.tasks.guard import Scored, VerifierWarning, score_all, verify_all
from rlhf_minimal.tasks.reviews import REVIEWS
from rlhf_minimal.tasks.rewards import RewardFunction, call_reward, model_reward, random_reward, verifier_reward
from rlhf_minimal.tasks.rows import CompletionRow, PairRow, TextRow, read_rows, write_rows

TASKS: dict[str, Task] = {task.name: task for task in (ADDITION, ADDITION_2, REVERSE, EVEN, REVIEWS)}


def get_task(name: str) -> Task:
    """The task of that name.

    Raises:
        ValueError: If there is none; the message lists those there are.

    Example:
        >>> get_task("addition").problems("held_out", 1, seed=0)[0].prompt[3]
        '+'
    """
    if name not in TASKS:
        raise ValueError(f"unknown task {name!r}; choose one of {', '.join(TASKS)}")
    return TASKS[name]


__all__ = [
    "TASKS",
    "CompletionRow",
    "PairRow",
    "Problem",
    "RewardFunction",
    "Scored",
    "Task",
    "TextRow",
    "VerifierWarning",
    "call_reward",
    "get_task",
    "model_reward",
    "random_reward",
    "read_rows",
    "score_all",
    "verifier_reward",
    "verify_all",
    "write_rows",
]
