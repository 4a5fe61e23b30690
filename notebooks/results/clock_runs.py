"""The recorded runs on the clock: when do completions grow, what do marks for steps pay, and which ways of paying fail?

    python notebooks/results/clock_runs.py               runs what is not yet recorded (40 runs, 15 minutes of one core)
    python notebooks/results/clock_runs.py growth coin   only the arms named

Writes notebooks/results/clock-runs.json, a line a run. Every run begins with a shipped start.

"growth" trains the row dr_grpo on the task clock for its verifier; "coin" is the same run with a reward that is the
toss of a coin, at the same learning rate.

The other arms train on clock:slip,low=12,high=14, where hardly a completion works without a slip. "outcome" is GRPO
without KL; each other arm differs from it in what marks the steps and in the advantage:

    future      1 for a right move, summed from each token on with the outcome (process)
    own         1 for a right move, for the tokens of that move alone (own_step)
    blame       a fine for the tokens of the first wrong move alone (first_wrong)
    fine        -1 for the first wrong move, summed from each token on with the outcome (process)
    marks       1 for a right move, summed from each token on, and nothing for the outcome (process)

Seeds 0 to 4 were fixed beforehand and all are recorded.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import as_file, files
from typing import Any

from recording import SEEDS as SEEDS
from recording import record

from rlhf_minimal import ALGORITHMS, Algorithm
from rlhf_minimal.functional import advantages
from rlhf_minimal.tasks import (
    Problem,
    Step,
    StepReward,
    Task,
    checked_steps,
    get_task,
    random_reward,
)
from rlhf_minimal.training import (
    Config,
    Learner,
    Recipe,
    Rollout,
    load_policy,
    train,
)

GROWTH = Config(steps=60, prompts=32, group_size=8, lr=3e-4, watch_kl="off")
STEPS = Config(steps=80, prompts=8, group_size=8, lr=5e-4, watch_kl="off")
OUTCOME = replace(ALGORITHMS["grpo"], kl=())
CELLS = {
    "future": advantages.process,
    "own": advantages.own_step,
    "blame": advantages.first_wrong,
    "fine": advantages.process,
    "marks": advantages.process,
}
ARMS = ("growth", "coin", "outcome", *CELLS)
# By step, means over its completions; and over its moves the share that is right.
KEPT = ("accuracy", "length", "length_right", "length_wrong", "idle", "moves", "right")


def task_of(arm: str) -> Task:
    """What an arm learns."""
    name = "clock" if arm in ("growth", "coin") else "clock:slip,low=12,high=14"
    return get_task(name)


def algorithm(arm: str) -> Algorithm:
    """What an arm trains with."""
    if arm in ("growth", "coin"):
        return ALGORITHMS["dr_grpo"]
    return replace(OUTCOME, advantage=CELLS[arm]) if arm in CELLS else OUTCOME


def fine_for_the_first_wrong(task: Task) -> StepReward:
    """-1 for the first wrong move, and no other mark."""
    check = checked_steps(task)

    def marks(**columns: Any) -> list[Sequence[Step]]:
        wrong = [
            [Step(end, -1.0) for end, mark in steps if mark == 0]
            for steps in check(**columns)
        ]
        return [steps[:1] for steps in wrong]

    return marks


def nothing(completions: Sequence[str], **columns: Any) -> list[float]:
    """A reward for no outcome."""
    return [0.0 for _ in completions]


def recipe(arm: str, seed: int) -> Recipe:
    """All that stays the same in a run."""
    task = task_of(arm)
    config = replace(GROWTH if arm in ("growth", "coin") else STEPS, seed=seed)
    reward = {"coin": random_reward(seed), "marks": nothing}.get(arm)
    marks = checked_steps(task) if arm in CELLS else None
    if arm == "fine":
        marks = fine_for_the_first_wrong(task)
    return Recipe(algorithm(arm), task, config, reward, step_reward=marks)


def moves(problem: Problem) -> int:
    """How many moves a problem has."""
    return problem.prompt.count("+")


def seen(task: Task, rollout: Rollout) -> dict[str, float]:
    """How much a step's completions work, and how well."""
    assert task.steps is not None
    idle = right = written = 0.0
    for text, problem in zip(rollout.texts, rollout.problems, strict=True):
        marks = [mark for _, mark in task.steps(text, problem)]
        idle += max(0, len(marks) - moves(problem))
        written += len(marks)
        right += sum(marks)
    rows = len(rollout.texts)
    return {
        "idle": idle / rows,
        "moves": written / rows,
        "right": right / max(1, written),
    }


def run(arm: str, seed: int, steps: int | None = None) -> dict[str, Any]:
    """One run: its curves, a number a step, and its processor seconds."""
    plan = recipe(arm, seed)
    if steps is not None:
        plan = replace(plan, config=replace(plan.config, steps=steps))
    with as_file(
        files("rlhf_minimal") / "assets" / (plan.task.start or plan.task.name)
    ) as folder:
        policy, vocabulary = load_policy(folder)
    learner = Learner.begin(policy, vocabulary, plan.algorithm, plan.config)
    looked: list[dict[str, float]] = []
    began = time.process_time()
    history = train(
        learner,
        plan,
        on_rollout=lambda step, rollout: looked.append(seen(plan.task, rollout)),
    )
    seconds = round(time.process_time() - began, 1)
    rows = [one | other for one, other in zip(history, looked, strict=True)]
    curves = {
        name: [None if name not in row else round(row[name], 4) for row in rows]
        for name in KEPT
    }
    last = rows[-5:]
    shown = {
        f"last_{name}": round(sum(row[name] for row in last) / len(last), 3)
        for name in ("accuracy", "length")
    }
    return {**shown, "seconds": seconds, **curves}


if __name__ == "__main__":
    record(
        __file__,
        ARMS,
        run,
        completions_a_step={"growth": 256, "coin": 256, "others": 64},
        lr={"growth": GROWTH.lr, "coin": GROWTH.lr, "others": STEPS.lr},
    )
