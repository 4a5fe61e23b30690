"""The recorded runs of the classic pipeline: pretrain, fine-tune, learn a reward, PPO, with the true score in sight.

    python notebooks/results/ppo_rlhf.py             runs what is not yet recorded (18 runs, a quarter of an hour
                                                     of one core)
    python notebooks/results/ppo_rlhf.py beta-0.05   only the arms named

Writes notebooks/results/ppo-rlhf.json, a line a run. An arm is the row `ppo` with another KL coefficient, in units of
the reward model's score (standard deviation 1 on its training answers) per nat. Task: `reviews`, whose score is known
and whose reward model has a blind spot made on purpose (see `rlhf_minimal.tasks.reviews`).

Every seed has a pipeline of its own: `pretrain`, `sft` and `reward` with the commands' defaults and that seed. Those of
seed 0 are the models that the library ships; the others are made under runs/ when they are missing, four minutes of one
core each.

Tried beforehand, on seed 0: PPO on the true score (.1, 30 steps), and the arms beta-0 and beta-0.05 with the
settings below, which were not changed afterwards. Seeds 0 to 2 and the other arms were fixed then; all are recorded.

What is kept: at every step the means over its 128 samples of proxy (`reward`), true score (`gold`), entropy, and
`kl_sequence`, nats per completion from the fine-tuned start. Before and after: the same on 2000 held-out samples, with
the standard error of the true score. `best_of_n` needs no training: the answer that the reward model likes best of n
samples of the start, its KL being log n - (n - 1) / n.
"""

import math
import time
from dataclasses import replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import torch
from recording import record

from rlhf_minimal import ALGORITHMS
from rlhf_minimal.cli import main
from rlhf_minimal.config import Config
from rlhf_minimal.lab.fast import fast
from rlhf_minimal.models import load_reward_model
from rlhf_minimal.objective import KL
from rlhf_minimal.tasks import Task, get_task, model_reward
from rlhf_minimal.tasks.reviews import BEST
from rlhf_minimal.train import Recipe, prepare_batch, roll_out, train
from rlhf_minimal.train_state import Learner
from rlhf_minimal.training import load_policy

SEEDS = range(3)
STEPS = 60
BETAS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.5)
ARMS = {f"beta-{beta:g}": beta for beta in BETAS}
KEPT = ("reward", "gold", "kl_sequence", "entropy")
HELD_OUT = 2000
BEST_OF = (1, 2, 4, 8, 16, 32, 64, 128)

TASK: Task = get_task("reviews")
ROOT = Path(__file__).parents[2]


def models(seed: int) -> tuple[Path, Path]:
    """Folders of the fine-tuned policy and of the reward model of a seed; made where they are missing."""
    if seed == 0:
        with as_file(files("rlhf_minimal") / "assets") as assets:
            return assets / "reviews", assets / "reviews-reward"
    runs = ROOT / "runs" / f"rlhf-seed-{seed}"
    starts = {
        "pretrain": "untrained",
        "sft": str(runs / "pretrain"),
        "reward": str(runs / "sft"),
    }
    for command, start in starts.items():
        if not (runs / command / "evaluation.json").exists():
            argv = [command, "--task", TASK.name, "--start", start, "--seed", str(seed)]
            argv = [*argv, "--out", str(runs / command), "--overwrite"]
            if main(argv) != 0:
                raise RuntimeError(f"a step of the recipe failed: {argv}")
    return runs / "sft", runs / "reward"


def begin(arm: str, seed: int, *, steps: int = STEPS) -> tuple[Learner, Recipe]:
    """A learner at the fine-tuned start, and what it trains."""
    policy_folder, reward_folder = models(seed)
    policy, vocabulary = load_policy(policy_folder)
    beta = ARMS[arm]
    row = replace(
        ALGORITHMS["ppo"], kl=(KL(beta, "k1", place="reward"),) if beta else ()
    )
    config = Config(
        steps=steps,
        prompts=32,
        group_size=4,
        epochs=2,
        minibatches=4,
        lr=4e-4,
        value_lr=2e-3,
        seed=seed,
    )
    recipe = fast(
        Recipe(row, TASK, config, model_reward(load_reward_model(reward_folder)))
    )
    return Learner.begin(policy, vocabulary, row, config), recipe


def measure(learner: Learner, recipe: Recipe) -> dict[str, float]:
    """True score, proxy and distance from the start on held-out prompts, one sample each."""
    problems = TASK.problems("held_out", HELD_OUT, seed="ppo-rlhf")
    recipe = replace(recipe, config=replace(recipe.config, group_size=1))
    found = roll_out(
        learner.policy, learner.vocabulary, problems, recipe, seed="ppo-rlhf"
    )
    return {
        "gold": found.correct.mean().item(),
        "proxy": found.rewards.mean().item(),
        "kl": prepare_batch(learner, recipe, found, 0)[1]["kl_sequence"],
    }


def best_of_n(
    learner: Learner, recipe: Recipe, *, prompts: int = 100, samples: int = 256
) -> dict[str, list[float]]:
    """Mean true score and proxy of the answer with the highest proxy among n samples of the policy, for n in BEST_OF.

    No n of the samples is preferred: the i-th best of all N is the best of n of them with probability
    C(N - i, n - 1) / C(N, n), and the means are taken with these weights.
    """
    problems = TASK.problems("held_out", prompts, seed="best-of-n")
    found = roll_out(
        learner.policy,
        learner.vocabulary,
        problems,
        recipe,
        group_size=samples,
        seed="best-of-n",
    )
    proxy, order = found.rewards.view(prompts, samples).sort(dim=1, descending=True)
    gold = found.correct.view(prompts, samples).gather(1, order)
    means: dict[str, list[float]] = {"gold": [], "proxy": []}
    for n in BEST_OF:
        weights = torch.tensor(
            [
                math.comb(samples - i, n - 1) / math.comb(samples, n)
                for i in range(1, samples + 1)
            ]
        )
        means["gold"].append(round((gold * weights).sum(1).mean().item(), 4))
        means["proxy"].append(round((proxy * weights).sum(1).mean().item(), 4))
    return {f"best_of_n_{name}": values for name, values in means.items()}


def run(arm: str, seed: int) -> dict[str, Any]:
    """One run, as it is recorded."""
    began = time.perf_counter()
    learner, recipe = begin(arm, seed)
    before = measure(learner, recipe)
    choosing = (
        best_of_n(learner, recipe) if arm == next(iter(ARMS)) else {}
    )  # it is the start's: once a seed
    history = train(learner, recipe)
    after = measure(learner, recipe)
    return {
        **{
            f"{name}_before": round(value, 5)
            for name, value in before.items()
            if name != "kl"
        },
        **{name: round(value, 5) for name, value in after.items()},
        "attained": round(attained(before["gold"], after["gold"]), 4),
        "seconds": round(time.perf_counter() - began, 1),
        **choosing,
        **{
            f"{name}_of_step": [round(step[name], 4) for step in history]
            for name in KEPT
        },
    }


def attained(before: float, after: float) -> float:
    """Share of the way from the fine-tuned start's true score to the best that there is."""
    return (after - before) / (BEST - before)


def kl_of_best_of(n: int) -> float:
    """Nats between the best of n samples and one sample, where all scores differ."""
    return math.log(n) - (n - 1) / n


if __name__ == "__main__":
    record(
        __file__,
        ARMS,
        run,
        seeds=SEEDS,
        steps=STEPS,
        held_out_samples=HELD_OUT,
        best_of=BEST_OF,
    )
