"""The recorded runs of the chapter on RLOO: baselines beside each other, a rollout used four times, and a mixture.

    python notebooks/results/rloo_runs.py              runs what is not yet recorded (145 runs, some 20 minutes of one core)
    python notebooks/results/rloo_runs.py rloo-0.001   only the arms named

Writes notebooks/results/rloo-runs.json, a line a run. Every run takes 30 steps of 256 completions (64 prompts, four
completions each) from the shipped start. Tokens are summed, there is no KL penalty, and the norm of the gradient is not
clipped, so that Adam alone decides what a scale of the advantages is worth.

Baselines: each arm at the same three learning rates, and in one update nothing but the advantage differs. `rloo` leaves
its own reward out, `centred` does not, `std` divides leave-one-out by the group's standard deviation, `std-others` by
that of the others, `batch` subtracts the mean of all 256 rewards, `pp` whitens the rewards over the batch's tokens
(REINFORCE++ without its KL), `pp-baseline` whitens the centred rewards. `coin` is `rloo` with a coin for a reward.

Reuse, four epochs over each rollout, at the lowest learning rate: `reuse-none` has no ratio, `reuse-product` the
product of a completion's ratios, clipped at 0.2, `reuse-token` each token's own ratio, clipped at 0.2.

Mixtures, at the middle learning rate: `mix-w` subtracts (1 - w) times the mean of the others plus w times a running
mean of all rewards of earlier steps.

Seeds 0 to 4 were fixed beforehand and all are recorded; seed 100 was used before that, to see how long a run takes
and at which learning rates a run falls apart: `rloo` did at 0.003, `reuse-none` at 0.001.
"""

import time
from dataclasses import replace
from functools import partial
from importlib.resources import as_file, files
from typing import Any

from recording import SEEDS as SEEDS
from recording import record
from torch import Tensor

from rlhf_minimal import ALGORITHMS, Algorithm
from rlhf_minimal.functional import advantages, gates, ratios
from rlhf_minimal.tasks import get_task, random_reward, verifier_reward
from rlhf_minimal.training import Config, Learner, Recipe, evaluate, load_policy, train

STEPS, PROMPTS, GROUP = 30, 64, 4
RATES = {"0.001": 1e-3, "0.0003": 3e-4, "0.002": 2e-3}
WEIGHTS = (0.25, 0.5, 0.75, 1.0)
KEPT = ("accuracy", "entropy", "kl", "grad_norm", "dead_groups")


def batch_centered(token_rewards: Tensor, mask: Tensor) -> Tensor:
    """Reward minus the mean reward of the batch, [B, T]."""
    rewards = (token_rewards * mask).sum(-1, keepdim=True)
    return (rewards - rewards.mean()) * mask


def mixed(
    token_rewards: Tensor,
    mask: Tensor,
    *,
    group_size: int,
    baseline: Tensor,
    weight: float,
) -> Tensor:
    """Reward minus a mixture of the others' mean and a given baseline, [B, T]."""
    own = advantages.leave_one_out(token_rewards, mask, group_size=group_size)
    given = advantages.given_baseline(token_rewards, mask, baseline=baseline)
    return (1 - weight) * own + weight * given


RLOO = replace(ALGORITHMS["rloo"], kl=())
BASELINES: dict[str, Algorithm] = {
    "rloo": RLOO,
    "centred": replace(RLOO, advantage=advantages.group_centered),
    "std": replace(RLOO, advantage=advantages.leave_one_out_normalized),
    "std-others": replace(
        RLOO,
        advantage=partial(advantages.leave_one_out_normalized, std="others"),
    ),
    "batch": replace(RLOO, advantage=batch_centered),
    "pp": replace(
        RLOO, advantage=advantages.returns_to_go, normalize=advantages.whiten
    ),
    "pp-baseline": replace(
        RLOO, advantage=advantages.group_centered, normalize=advantages.whiten
    ),
}
CLIP = partial(gates.clip, low=0.2, high=0.2)
REUSE: dict[str, Algorithm] = {
    "reuse-none": RLOO,
    "reuse-product": replace(RLOO, ratio=ratios.sequence_product, gate=CLIP),
    "reuse-token": replace(RLOO, ratio=ratios.token, gate=CLIP),
}
MIXED = {f"mix-{w}": replace(RLOO, advantage=partial(mixed, weight=w)) for w in WEIGHTS}
LR, SLOW = RATES["0.001"], RATES["0.0003"]

# arm: its row, its learning rate, its epochs over each rollout
ARMS: dict[str, tuple[Algorithm, float, int]] = {
    **{f"{name}-0.001": (row, LR, 1) for name, row in BASELINES.items()},
    "coin": (RLOO, LR, 1),
    **{name: (row, LR, 1) for name, row in MIXED.items()},
    **{name: (row, SLOW, 4) for name, row in REUSE.items()},
    **{
        f"{name}-{rate}": (row, lr, 1)
        for rate, lr in RATES.items()
        for name, row in BASELINES.items()
        if lr != LR
    },
}


def begin(arm: str, seed: int, *, steps: int = STEPS) -> tuple[Learner, Recipe]:
    """A learner at the shipped start, and what it is trained with."""
    row, lr, epochs = ARMS[arm]
    config = Config(
        steps=steps,
        seed=seed,
        prompts=PROMPTS,
        group_size=GROUP,
        lr=lr,
        epochs=epochs,
        grad_clip=1e9,
    )
    task = get_task("addition")
    score = random_reward(seed) if arm == "coin" else verifier_reward(task)
    what = Recipe(row, task, config, reward=score)
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
