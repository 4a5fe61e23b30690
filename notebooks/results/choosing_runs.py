"""The recorded runs of the chapter on choosing: a fixed KL coefficient against one that follows the KL.

    python notebooks/results/choosing_runs.py              runs what is not yet recorded (55 runs, some 8 minutes of one core)
    python notebooks/results/choosing_runs.py fixed-0.04   only the arms named

Writes notebooks/results/choosing-runs.json, a line a run. Every run is the arm "visible_kl" of verifier_runs.py but for its
KL coefficient: the task `stack`, the row dr_grpo with a KL penalty (k3, in the loss, against the start), 40 steps of 256
programs, and a verifier with a hole: it looks at three of the eleven tests. "reward" is what the hole pays for, "accuracy"
is by all eleven tests and is not trained for.

    none        no KL penalty
    fixed-X     the coefficient is X throughout
    target-X    the coefficient begins at 0.1 and rises by at most a fifth a step while the sampled KL is above X nats a
                completion, and falls likewise while it is below (Ziegler et al. 2019; `Config.kl_control`)

Both rules have a grid of five, in steps of about a factor (3 of the coefficient, 1.4 of the target), from hardly a penalty
to one that holds the policy at its start. Seeds 0 to 4 were fixed beforehand and all are recorded; grids, beginning and
horizon were chosen on seed 100 alone.
"""

import time
from dataclasses import replace
from importlib.resources import as_file, files
from typing import Any

import verifier_runs
from recording import SEEDS as SEEDS
from recording import record

from rlhf_minimal import ALGORITHMS, KL
from rlhf_minimal.config import Config
from rlhf_minimal.lab.fast import fast
from rlhf_minimal.train import Recipe, train
from rlhf_minimal.train_state import Learner
from rlhf_minimal.training import load_policy

STEPS, LAST = verifier_runs.STEPS, verifier_runs.LAST
COMPLETIONS = verifier_runs.PROMPTS * verifier_runs.GROUP_SIZE
FIRST = 0.1  # where a coefficient that moves begins
COEFFICIENTS = (0.01, 0.03, 0.1, 0.3, 1.0)
TARGETS = (0.25, 0.35, 0.5, 0.7, 1.0)
ARMS = (
    "none",
    *(f"fixed-{x:g}" for x in COEFFICIENTS),
    *(f"target-{x:g}" for x in TARGETS),
)
KEPT = ("reward", "accuracy", "kl_sequence", "kl_coef")  # by step


def begin(arm: str, seed: int, *, steps: int = STEPS) -> tuple[Learner, Recipe]:
    """A learner at the shipped start, and what it trains."""
    kind, _, number = arm.partition("-")
    config = Config(
        steps=steps,
        prompts=verifier_runs.PROMPTS,
        group_size=verifier_runs.GROUP_SIZE,
        seed=seed,
    )
    terms: tuple[KL, ...] = ()
    if kind == "fixed":
        terms = (KL(float(number), "k3"),)
    elif kind == "target":
        terms = (KL(FIRST, "k3"),)
        config = replace(
            config,
            kl_control="adaptive",
            kl_control_target=float(number),
            kl_control_horizon=COMPLETIONS,
        )
    row = replace(ALGORITHMS["dr_grpo"], kl=terms)
    task, reward = (
        verifier_runs.get_task("stack"),
        verifier_runs.rewards("visible", seed),
    )
    with as_file(files("rlhf_minimal") / "assets" / task.name) as folder:
        policy, vocabulary = load_policy(folder)
    recipe = fast(Recipe(row, task, config, reward))
    return Learner.begin(policy, vocabulary, row, config), recipe


def run(arm: str, seed: int) -> dict[str, Any]:
    """One run: its curves, a number a step, and its processor seconds."""
    began = time.process_time()
    learner, recipe = begin(arm, seed)
    history = train(learner, recipe)
    curves = {name: [round(one.get(name, 0.0), 4) for one in history] for name in KEPT}
    ends = {
        f"last_{name}": round(sum(curve[-LAST:]) / LAST, 4)
        for name, curve in curves.items()
    }
    return {**ends, "seconds": round(time.process_time() - began, 1), **curves}


if __name__ == "__main__":
    record(
        __file__, ARMS, run, steps=STEPS, completions_a_step=COMPLETIONS, first=FIRST
    )
