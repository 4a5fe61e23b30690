"""The recorded runs of the chapter on scaling up: all weights trained, or corrections of low rank.

    python notebooks/results/lora_runs.py            runs what is not yet recorded (25 runs, five minutes of one core)
    python notebooks/results/lora_runs.py rank-4     only the arms named

Writes notebooks/results/lora-runs.json, a line a run. Every run takes 40 steps of 512 completions from the shipped
start with Dr. GRPO, alpha 8 at every rank, so that a first step is about as large at each; the last arm has alpha 32,
twice its rank, as a rule of thumb has it. The learning rate of the corrections is ten times that of the weights; it was
chosen for rank 4 on seed 100, among 1, 3, 10 and 30 times. Seeds 0 to 4 were fixed beforehand and all are recorded.
"""

import time
from importlib.resources import as_file, files
from typing import Any

from recording import SEEDS as SEEDS
from recording import record

from rlhf_minimal import ALGORITHMS
from rlhf_minimal.config import Config
from rlhf_minimal.evaluate import evaluate
from rlhf_minimal.lab.fast import fast
from rlhf_minimal.tasks import get_task
from rlhf_minimal.train import Recipe
from rlhf_minimal.train import train as train_on
from rlhf_minimal.train_state import Learner
from rlhf_minimal.training import load_policy

STEPS, LR, LR_TIMES, ALPHA = 40, 8e-4, 10, 8.0
ARMS: dict[str, tuple[int, float] | None] = {  # rank and alpha
    "full": None,
    "rank-1": (1, ALPHA),
    "rank-4": (4, ALPHA),
    "rank-16": (16, ALPHA),
    "rank-16-alpha-32": (16, 4 * ALPHA),
}


def begin(
    arm: str, seed: int, *, steps: int = STEPS, times: float = LR_TIMES
) -> tuple[Learner, Recipe]:
    """A learner at the shipped start, and what it is trained with."""
    lora: dict[str, Any] = {}
    if (of_arm := ARMS[arm]) is not None:
        lora = {"lora_rank": of_arm[0], "lora_alpha": of_arm[1]}
    lr = times * LR if lora else LR
    config = Config(steps=steps, seed=seed, lr=lr, watch_kl="off", **lora)
    recipe = fast(Recipe(ALGORITHMS["dr_grpo"], get_task("addition"), config))
    with as_file(files("rlhf_minimal") / "assets" / "addition") as folder:
        policy, vocabulary = load_policy(folder)
    return Learner.begin(policy, vocabulary, recipe.algorithm, config), recipe


def run(arm: str, seed: int) -> dict[str, Any]:
    """One run, as it is recorded."""
    began = time.perf_counter()
    learner, recipe = begin(arm, seed)
    history = train_on(learner, recipe)
    after = evaluate(learner.policy, learner.vocabulary, recipe)
    return {
        "trained": sum(
            weight.numel()
            for weight in learner.policy.parameters()
            if weight.requires_grad
        ),
        "sampled": after.sampled.share,
        "greedy": after.greedy.share,
        "seconds": round(time.perf_counter() - began, 1),
        "reward": [round(step["reward"], 4) for step in history],
    }


if __name__ == "__main__":
    record(
        __file__,
        ARMS,
        run,
        steps=STEPS,
        held_out_problems=1000,
        lr=LR,
        lr_times=LR_TIMES,
        alpha=ALPHA,
    )
