"""The recorded runs of the chapter on policy gradients: the same rewards, moved by a constant.

    python notebooks/results/policy_gradient_runs.py          runs what is not yet recorded (60 runs, 15 minutes)
    python notebooks/results/policy_gradient_runs.py plus-1   only the arms named

Writes notebooks/results/policy-gradient-runs.json, a line a run. Every run takes 40 steps of 256 completions (16 prompts,
16 completions each) from the shipped start. The row is `reinforce`. An arm adds a constant to every reward, or subtracts
the mean of the prompt's completions, or both, and differs in nothing else. No constant changes the gradient of the
expected reward. In the control, `coin`, a coin pays instead of the checker.

The arms `offset...` add a number of the prompt's own to every reward, 0, 1, 2 or 3 (`own_number`), and differ in the
advantage alone: none, minus the mean of the batch, minus the mean of the prompt, and that over the prompt's standard
deviation, as in GRPO. `zero`, `batch`, `mean` and `zscore` are the same four without such a number.

Seeds 0 to 4 were fixed beforehand and all are recorded; seed 100 was used before that, to see how long a run takes.
"""

import time
import zlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from importlib.resources import as_file, files
from typing import Any

from recording import SEEDS as SEEDS
from recording import record
from rloo_runs import batch_centered
from torch import Tensor

from rlhf_minimal import ALGORITHMS, Algorithm
from rlhf_minimal.config import Config
from rlhf_minimal.evaluate import evaluate
from rlhf_minimal.functional import advantages
from rlhf_minimal.lab.fast import fast
from rlhf_minimal.tasks import RewardFunction, get_task, random_reward, verifier_reward
from rlhf_minimal.train import Recipe, train
from rlhf_minimal.train_state import Learner
from rlhf_minimal.training import load_policy

STEPS, PROMPTS, GROUP = 40, 16, 16
KEPT = ("accuracy", "entropy", "kl", "grad_norm", "loss")


def moved(rewards: Tensor, lengths: Tensor, *, by: float) -> Tensor:
    """Every reward plus a constant: a cell of the column `shape`."""
    return rewards + by


def own_number(prompt: str) -> int:
    """Of each prompt: 0, 1, 2 or 3, the same in every run."""
    return zlib.crc32(prompt.encode()) % 4


def with_own_number(reward: RewardFunction) -> RewardFunction:
    """A reward function, plus the prompt's own number."""

    def moved_by_prompt(
        prompts: Sequence[str], completions: Sequence[str], **columns: Any
    ) -> list[float]:
        found = reward(prompts=prompts, completions=completions, **columns)
        return [r + own_number(q) for r, q in zip(found, prompts, strict=True)]

    return moved_by_prompt


REINFORCE = ALGORITHMS["reinforce"]
BATCH = replace(REINFORCE, advantage=batch_centered)
MEAN = replace(REINFORCE, advantage=advantages.group_centered)
ZSCORE = replace(REINFORCE, advantage=advantages.group_normalized)

# arm: its row. Rewards are 1 for right and 0 for wrong before they are moved.
ARMS: dict[str, Algorithm] = {
    "zero": REINFORCE,
    "plus-1": replace(REINFORCE, shape=partial(moved, by=1.0)),
    "minus-1": replace(REINFORCE, shape=partial(moved, by=-1.0)),
    "mean": MEAN,
    "plus-1-mean": replace(MEAN, shape=partial(moved, by=1.0)),
    "coin": REINFORCE,
    "batch": BATCH,
    "zscore": ZSCORE,
    "offset": REINFORCE,
    "offset-batch": BATCH,
    "offset-mean": MEAN,
    "offset-zscore": ZSCORE,
}


def begin(arm: str, seed: int, *, steps: int = STEPS) -> tuple[Learner, Recipe]:
    """A learner at the shipped start, and what it is trained with."""
    config = Config(steps=steps, seed=seed, prompts=PROMPTS, group_size=GROUP)
    task = get_task("addition")
    score = random_reward(seed) if arm == "coin" else verifier_reward(task)
    if arm.startswith("offset"):
        score = with_own_number(score)
    what = fast(Recipe(ARMS[arm], task, config, reward=score))
    with as_file(files("rlhf_minimal") / "assets" / "addition") as folder:
        policy, vocabulary = load_policy(folder)
    return Learner.begin(policy, vocabulary, what.algorithm, what.config), what


def kept(history: list[dict[str, Any]]) -> dict[str, list[float]]:
    """What is kept of a run, by step."""
    return {name: [round(step[name], 4) for step in history] for name in KEPT}


def run(arm: str, seed: int) -> dict[str, Any]:
    """One run, as it is recorded."""
    began = time.perf_counter()
    learner, what = begin(arm, seed)
    history = train(learner, what)
    after = evaluate(learner.policy, learner.vocabulary, what)
    return {
        "sampled": after.sampled.share,
        "greedy": after.greedy.share,
        "seconds": round(time.perf_counter() - began, 1),
        **kept(history),
    }


if __name__ == "__main__":
    record(
        __file__,
        ARMS,
        run,
        steps=STEPS,
        samples_per_step=PROMPTS * GROUP,
        held_out_problems=1000,
    )
