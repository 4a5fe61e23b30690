"""The recorded runs of the task `stack`: the same start, trained for hidden tests, for visible ones, and for a coin.

    python notebooks/results/stack_runs.py            runs what is not yet recorded (9 runs, some minutes of one core)
    python notebooks/results/stack_runs.py hidden     only the arms named

Writes notebooks/results/stack-runs.json, a line a run. Every run is GRPO as it stands in the table, from the shipped
start. An arm is its reward: 1 if a program passes all tests (`hidden`), 1 if it passes those that the prompt shows
(`visible`), or a coin (`coin`). `accuracy` is by all tests in every arm; so is what is measured on held-out problems
before and after. `tables` is the share of the programs that hold a table of the outputs. Seeds 0 to 2 were fixed
beforehand.
"""

import time
from importlib.resources import as_file, files
from typing import Any

from recording import record

from rlhf_minimal import ALGORITHMS
from rlhf_minimal.config import Config
from rlhf_minimal.evaluate import evaluate
from rlhf_minimal.lab.fast import fast
from rlhf_minimal.tasks import (
    RewardFunction,
    get_task,
    random_reward,
    verifier_reward,
)
from rlhf_minimal.train import Recipe, roll_out, train
from rlhf_minimal.train_state import Learner
from rlhf_minimal.training import load_policy

SEEDS = range(3)
STEPS, PROMPTS, GROUP_SIZE, HELD_OUT = 40, 32, 8, 500
ARMS = ("hidden", "visible", "coin")
KEPT = ("reward", "accuracy", "length", "entropy", "kl")


def begin(arm: str, seed: int, *, steps: int = STEPS) -> tuple[Learner, Recipe]:
    """A learner at the shipped start, and what it trains."""
    rewards: dict[str, RewardFunction | None] = {
        "hidden": None,
        "visible": verifier_reward(get_task("stack:tests=visible")),
        "coin": random_reward(seed),
    }
    config = Config(steps=steps, prompts=PROMPTS, group_size=GROUP_SIZE, seed=seed)
    recipe = fast(Recipe(ALGORITHMS["grpo"], get_task("stack"), config, rewards[arm]))
    with as_file(files("rlhf_minimal") / "assets" / "stack") as folder:
        policy, vocabulary = load_policy(folder)
    return Learner.begin(policy, vocabulary, recipe.algorithm, config), recipe


def tables(learner: Learner, recipe: Recipe) -> float:
    """The share of sampled programs for held-out problems that choose between outputs."""
    problems = recipe.task.problems("held_out", HELD_OUT, seed="tables")
    written = roll_out(learner.policy, learner.vocabulary, problems, recipe, seed="t")
    return sum("?" in text for text in written.texts) / HELD_OUT


def run(arm: str, seed: int) -> dict[str, Any]:
    """One run, as it is recorded."""
    learner, recipe = begin(arm, seed)
    measured: dict[str, Any] = {}
    began = time.process_time()
    history = train(learner, recipe)
    measured["cpu_seconds"] = round(time.process_time() - began, 1)
    after = evaluate(learner.policy, learner.vocabulary, recipe, n=HELD_OUT)
    measured |= {"sampled": after.sampled.share, "greedy": after.greedy.share}
    measured["tables"] = round(tables(learner, recipe), 4)
    kept = {name: [round(step[name], 4) for step in history] for name in KEPT}
    return measured | kept


if __name__ == "__main__":
    record(
        __file__,
        ARMS,
        run,
        seeds=SEEDS,
        steps=STEPS,
        samples_per_step=PROMPTS * GROUP_SIZE,
    )
