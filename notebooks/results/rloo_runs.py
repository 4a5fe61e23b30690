"""The recorded runs of the chapter on RLOO: baselines beside each other, and four of them at three learning rates.

    python notebooks/results/rloo_runs.py              runs what is not yet recorded (some eight seconds a run)
    python notebooks/results/rloo_runs.py rloo-0.001   only the arms named

Writes notebooks/results/rloo-runs.json, a line a run. Every run takes 30 steps of 256 completions (64 prompts, four
completions each) from the shipped start. Tokens are summed, there is no KL penalty, and the norm of the gradient is not
clipped, so that Adam alone decides what a scale of the advantages is worth. Arms differ in the advantage and in the
learning rate, with which their names end.

`rloo` leaves its own reward out, `centred` does not, `std` divides leave-one-out by the group's standard deviation,
`std-others` by that of the others, `batch` subtracts the mean of all 256 rewards, `pp` whitens the rewards over the
batch's tokens (REINFORCE++ without its KL), `pp-baseline` whitens the centred rewards. `coin` is `rloo` with a coin for
a reward. All of these have the learning rate 0.001; four of them also 0.0003 and 0.002.

Seeds 0 to 4 were fixed beforehand and all are recorded; seed 100 was used before that, to see how long a run takes and
at which learning rates a run falls apart: `rloo` did at 0.003.
"""

import time
from dataclasses import replace
from functools import partial
from importlib.resources import as_file, files
from typing import Any

from recording import SEEDS as SEEDS
from recording import record
from torch import Tensor

from rlhf_minimal import ALGORITHMS, Algorithm, contrib
from rlhf_minimal.config import Config
from rlhf_minimal.evaluate import evaluate
from rlhf_minimal.functional import advantages
from rlhf_minimal.lab.fast import fast
from rlhf_minimal.tasks import get_task, random_reward, verifier_reward
from rlhf_minimal.train import Recipe, train
from rlhf_minimal.train_state import Learner
from rlhf_minimal.training import load_policy

STEPS, PROMPTS, GROUP = 30, 64, 4
KEPT = ("accuracy", "entropy", "kl", "grad_norm", "dead_groups")


def batch_centered(token_rewards: Tensor, mask: Tensor) -> Tensor:
    """Reward minus the mean reward of the batch, [B, T]."""
    rewards = (token_rewards * mask).sum(-1, keepdim=True)
    return (rewards - rewards.mean()) * mask


RLOO = replace(ALGORITHMS["rloo"], kl=())
BASELINES: dict[str, Algorithm] = {
    "rloo": RLOO,
    "centred": replace(RLOO, advantage=advantages.group_centered),
    "std": replace(RLOO, advantage=contrib.advantages.leave_one_out_normalized),
    "std-others": replace(
        RLOO,
        advantage=partial(contrib.advantages.leave_one_out_normalized, std="others"),
    ),
    "batch": replace(RLOO, advantage=batch_centered),
    "pp": replace(
        RLOO, advantage=advantages.returns_to_go, normalize=advantages.whiten
    ),
    "pp-baseline": replace(
        RLOO, advantage=advantages.group_centered, normalize=advantages.whiten
    ),
    "coin": RLOO,
}
SWEPT, RATES = ("rloo", "centred", "batch", "pp-baseline"), (3e-4, 2e-3)

# arm: its row, its learning rate
ARMS: dict[str, tuple[Algorithm, float]] = {
    **{f"{name}-0.001": (row, 1e-3) for name, row in BASELINES.items()},
    **{f"{name}-{lr}": (BASELINES[name], lr) for lr in RATES for name in SWEPT},
}


def begin(arm: str, seed: int, *, steps: int = STEPS) -> tuple[Learner, Recipe]:
    """A learner at the shipped start, and what it is trained with."""
    row, lr = ARMS[arm]
    config = Config(
        steps=steps,
        seed=seed,
        prompts=PROMPTS,
        group_size=GROUP,
        lr=lr,
        grad_clip=1e9,
    )
    task = get_task("addition")
    score = random_reward(seed) if arm.startswith("coin") else verifier_reward(task)
    what = fast(Recipe(row, task, config, reward=score))
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
