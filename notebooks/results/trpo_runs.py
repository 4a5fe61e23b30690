"""The recorded runs of TRPO: the natural gradient, the gradient under the same KL bound, and AdamW.

    python notebooks/results/trpo_runs.py              runs what is not yet recorded (35 runs, twenty minutes of one core)
    python notebooks/results/trpo_runs.py trpo-128     only the arms named

Writes notebooks/results/trpo-runs.json, a line a run. Task: begin the answer with an even digit, from an untrained tiny
model, 20 steps. An arm's number is its samples a step, in groups of 8.

- trpo: the library's trust region as it is (bound .01 nats a token, 10 products, damping .1).
- sharp: the same with damping .001; ten products leave more of this system unsolved (cg_residual).
- gradient: the same bound and line search along the plain gradient (a damping of a million leaves nothing else).
- adamw: the loop's own update at the learning rate of tests/training/test_learns.py.

Seeds 0 to 4 were fixed beforehand and all are recorded. Tried before that on seeds 0 and 1: dampings .001, .01, .1 at
128 samples, where the plain gradient was ahead of them all; the arms with 512 samples were added because of that (1024
was begun first and given up after three runs, being slow and soon at its ceiling).
"""

import time
from dataclasses import replace
from functools import partial
from typing import Any

from recording import SEEDS as SEEDS
from recording import record

from rlhf_minimal import ALGORITHMS
from rlhf_minimal.config import Config
from rlhf_minimal.evaluate import evaluate
from rlhf_minimal.functional import gates
from rlhf_minimal.lab.fast import fast
from rlhf_minimal.lab.trust_region import TrustRegion, trust_region_update
from rlhf_minimal.models import Vocabulary, tiny_llama
from rlhf_minimal.tasks import get_task
from rlhf_minimal.train import Recipe, train
from rlhf_minimal.train_state import Learner

STEPS = 20
KEPT = ("reward", "kl", "entropy")
KEPT_OF_A_REGION = (
    "accepted",
    "step_kl",
    "step_kl_predicted",
    "improvement",
    "improvement_predicted",
    "cg_residual",
)

TASK = get_task("even")
ROW = replace(
    ALGORITHMS["grpo"], gate=gates.none, kl=()
)  # TRPO's surrogate: ratio times advantage, and no leash

REGIONS = {
    "trpo": TrustRegion(),
    "sharp": TrustRegion(cg_damping=1e-3),
    "gradient": TrustRegion(cg_damping=1e6),
    "adamw": None,
}
ARMS = (
    "trpo-128",
    "sharp-128",
    "gradient-128",
    "adamw-128",
    "trpo-512",
    "sharp-512",
    "gradient-512",
)


def begin(
    arm: str, seed: int, *, steps: int = STEPS
) -> tuple[Learner, Recipe, dict[str, Any]]:
    """An untrained learner, what it trains on, and what `train` gets besides."""
    name, _, samples = arm.partition("-")
    config = Config(
        steps=steps, prompts=int(samples) // 8, group_size=8, lr=3e-3, seed=seed
    )
    vocabulary = Vocabulary(TASK.alphabet)
    policy = tiny_llama(len(vocabulary), width=32, layers=1, heads=2, seed=seed)
    region = REGIONS[name]
    options = (
        {}
        if region is None
        else {"update": partial(trust_region_update, region=region)}
    )
    return (
        Learner.begin(policy, vocabulary, ROW, config),
        fast(Recipe(ROW, TASK, config)),
        options,
    )


def run(arm: str, seed: int) -> dict[str, Any]:
    """One run, as it is recorded."""
    began = time.perf_counter()
    learner, recipe, options = begin(arm, seed)
    history = train(learner, recipe, **options)
    after = evaluate(learner.policy, learner.vocabulary, recipe)
    kept = KEPT + (KEPT_OF_A_REGION if options else ())
    return {
        "sampled": after.sampled.share,
        "greedy": after.greedy.share,
        "seconds": round(time.perf_counter() - began, 1),
        **{name: [round(step[name], 5) for step in history] for name in kept},
    }


if __name__ == "__main__":
    record(__file__, ARMS, run, steps=STEPS, held_out_problems=1000)
