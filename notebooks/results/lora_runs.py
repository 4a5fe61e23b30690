"""The recorded runs of the chapter on scaling up: all weights trained, or corrections of low rank.

    python notebooks/results/lora_runs.py            runs what is not yet recorded (20 runs, four minutes of one core)
    python notebooks/results/lora_runs.py rank-4     only the arms named

Writes notebooks/results/lora-runs.json, a line a run. Every run takes 40 steps of 512 completions from the shipped
start with Dr. GRPO, alpha twice the rank. The learning rate of the corrections is ten times that of the weights; it was
chosen for rank 4 on seed 100, among 1, 3, 10 and 30 times. Seeds 0 to 4 were fixed beforehand and all are recorded.
"""

import time
from importlib.resources import as_file, files
from typing import Any

from recording import SEEDS as SEEDS
from recording import record

from rlhf_minimal import ALGORITHMS
from rlhf_minimal.tasks import get_task
from rlhf_minimal.training import Config, Learner, Recipe, evaluate, load_policy
from rlhf_minimal.training import train as train_on

STEPS, LR, LR_TIMES = 40, 8e-4, 10
ARMS: dict[str, int | None] = {"full": None, "rank-1": 1, "rank-4": 4, "rank-16": 16}


def begin(arm: str, seed: int, *, steps: int = STEPS, times: float = LR_TIMES) -> tuple[Learner, Recipe]:
    """A learner at the shipped start, and what it is trained with."""
    rank = ARMS[arm]
    lora = {} if rank is None else {"lora_rank": rank, "lora_alpha": 2.0 * rank}
    lr = LR if rank is None else times * LR
    config = Config(steps=steps, seed=seed, lr=lr, watch_kl="off", **lora)  # type: ignore[arg-type]
    recipe = Recipe(ALGORITHMS["dr_grpo"], get_task("addition"), config)
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
        "trained": sum(weight.numel() for weight in learner.policy.parameters() if weight.requires_grad),
        "sampled": after.sampled.share,
        "greedy": after.greedy.share,
        "seconds": round(time.perf_counter() - began, 1),
        "reward": [round(step["reward"], 4) for step in history],
    }


if __name__ == "__main__":
    record(__file__, ARMS, run, steps=STEPS, held_out_problems=1000, lr=LR, lr_times=LR_TIMES)
