"""The learning rates of the recorded runs on distillation: every arm with five rates, on a seed of their own.

    python notebooks/results/distillation_grid.py          runs what is not yet recorded (50 runs, two minutes)

Writes notebooks/results/distillation-grid.json, a line a run. `distillation_runs.py` says what the arms are, and takes
the best rate of each from here.
"""

from typing import Any

from distillation_runs import ARMS, LONG, STEPS, train
from recording import record

RATES = (4e-4, 8e-4, 1.6e-3, 3.2e-3, 6.4e-3)
SEEDS = (100,)
TRIED = [f"{arm}@{lr:g}" for arm in ARMS if arm not in ("coin", *LONG) for lr in RATES]


def run(arm: str, seed: int) -> dict[str, Any]:
    """One run: the share of right samples on held-out questions, after the last step."""
    name, lr = arm.split("@")
    return {
        "held_out": [
            round(x, 3)
            for x in train(name, seed, lr=float(lr), every=STEPS)[1]["held_out"]
        ]
    }


if __name__ == "__main__":
    record(__file__, TRIED, run, seeds=SEEDS)
