"""The recorded runs of the chapter on GRPO: group size, temperature, reference, and what they are compared with.

    python notebooks/results/grpo_sweeps.py            runs what is not yet recorded (90 runs, under an hour of one core)
    python notebooks/results/grpo_sweeps.py group-2    only the arms named

Writes notebooks/results/grpo-sweeps.json, a line a run. Every run takes 50 steps of 512 completions from the shipped
start; an arm changes what its name says and nothing else. Seeds 0 to 4 were fixed beforehand and all are recorded.
Tried on seed 100 before that, and fixed then: the number of steps, and beta 1 with a refresh every 10 steps for the
arms about the reference (at the row's own .04 the KL penalty is too small to show a difference).

The arms `raw-...`, `centred-...` and `zscore-...` lie between REINFORCE and GRPO: three advantages (the reward itself,
minus the group's mean, divided by the group's standard deviation too) times two ways to add up tokens (sum or mean),
none with a KL penalty. `reinforce` is the corner raw-sum and `reference-none` the corner zscore-mean. Neighbours differ
in one cell; with one update for each batch every ratio is 1, so ratio and clip are not among the differences.
"""

import time
from dataclasses import replace
from importlib.resources import as_file, files
from typing import Any

import torch
from recording import SEEDS as SEEDS
from recording import record

from rlhf_minimal import ALGORITHMS, KL, Algorithm
from rlhf_minimal.config import Config
from rlhf_minimal.evaluate import evaluate
from rlhf_minimal.functional import advantages, aggregation
from rlhf_minimal.lab.fast import fast
from rlhf_minimal.tasks import RewardFunction, get_task, random_reward, verifier_reward
from rlhf_minimal.train import Recipe, train
from rlhf_minimal.train_state import Learner
from rlhf_minimal.training import load_policy

STEPS, SAMPLES = 50, 512
KEPT = ("reward", "dead_groups", "kl", "entropy", "loss", "clip_fraction")

GRPO = ALGORITHMS["grpo"]
LEASHED = replace(GRPO, kl=(KL(1.0, "k3"),))
FREE = replace(GRPO, kl=())
REINFORCE = ALGORITHMS["reinforce"]

# arm: (algorithm, what its config changes). The first is what the others are compared with.
ARMS: dict[str, tuple[Algorithm, dict[str, Any]]] = {
    "group-16": (GRPO, {}),
    "group-2": (GRPO, {"group_size": 2}),
    "group-4": (GRPO, {"group_size": 4}),
    "group-8": (GRPO, {"group_size": 8}),
    "group-32": (GRPO, {"group_size": 32}),
    "temperature-0.5": (GRPO, {"temperature": 0.5}),
    "temperature-0.7": (GRPO, {"temperature": 0.7}),
    "temperature-1.3": (GRPO, {"temperature": 1.3}),
    "reference-none": (FREE, {}),
    "reference-frozen": (LEASHED, {}),
    "reference-refresh": (LEASHED, {"reference": "refresh", "refresh_every": 10}),
    "random-reward": (GRPO, {}),
    "ppo": (ALGORITHMS["ppo"], {}),
    "reinforce": (REINFORCE, {}),
    "centred-sum": (replace(REINFORCE, advantage=advantages.group_centered), {}),
    "zscore-sum": (replace(REINFORCE, advantage=advantages.group_normalized), {}),
    "raw-mean": (replace(REINFORCE, aggregate=aggregation.sequence_mean), {}),
    "centred-mean": (replace(FREE, advantage=advantages.group_centered), {}),
}


def recipe(arm: str, seed: int, *, steps: int = STEPS) -> tuple[Recipe, list[float]]:
    """What an arm trains, and a list that will hold the mean standard deviation of the rewards in a group, by step."""
    algorithm, changes = ARMS[arm]
    config = replace(Config(steps=steps, seed=seed, group_size=16), **changes)
    config = replace(config, prompts=SAMPLES // config.group_size)
    task = get_task("addition")
    score = random_reward(seed) if arm == "random-reward" else verifier_reward(task)
    spreads: list[float] = []
    return fast(
        Recipe(
            algorithm, task, config, reward=_watched(score, config.group_size, spreads)
        )
    ), spreads


def begin(
    arm: str, seed: int, *, steps: int = STEPS
) -> tuple[Learner, Recipe, list[float]]:
    """A learner at the shipped start, and what `recipe` gives."""
    what, spreads = recipe(arm, seed, steps=steps)
    with as_file(files("rlhf_minimal") / "assets" / "addition") as folder:
        policy, vocabulary = load_policy(folder)
    return Learner.begin(policy, vocabulary, what.algorithm, what.config), what, spreads


def run(arm: str, seed: int) -> dict[str, Any]:
    """One run, as it is recorded."""
    began = time.perf_counter()
    learner, what, spreads = begin(arm, seed)
    history = train(learner, what)
    spreads = spreads[: len(history)]  # the evaluation asks for rewards too
    after = evaluate(learner.policy, learner.vocabulary, what)
    return {
        "sampled": after.sampled.share,
        "greedy": after.greedy.share,
        "seconds": round(time.perf_counter() - began, 1),
        "spread": [round(x, 4) for x in spreads],
        **{name: [round(step[name], 4) for step in history] for name in KEPT},
    }


def _watched(
    score: RewardFunction, group_size: int, spreads: list[float]
) -> RewardFunction:
    def watched(*args: Any, **kwargs: Any) -> list[float]:
        rewards = list(score(*args, **kwargs))
        if len(rewards) == SAMPLES:
            spreads.append(
                torch.tensor(rewards).view(-1, group_size).std(-1).mean().item()
            )
        return rewards

    return watched


if __name__ == "__main__":
    record(
        __file__,
        ARMS,
        run,
        steps=STEPS,
        samples_per_step=SAMPLES,
        held_out_problems=1000,
    )
