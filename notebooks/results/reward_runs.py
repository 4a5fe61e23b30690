"""The recorded course to a reward model, as a user types it: pretrain, sft, reward, with the commands' own defaults.

    python notebooks/results/reward_runs.py            runs what is not yet recorded (six runs, 11 minutes of one core)
    python notebooks/results/reward_runs.py small      only the arm named

Writes notebooks/results/reward-runs.json, a line a run. Task: reviews, whose gold score is known exactly.

- defaults: the three commands with nothing but --task, --start, --seed and --out.
- small: the same with SMALL steps and rows, which a test repeats.

Seeds 0 to 2 were fixed beforehand and all are recorded. Seconds are those of one core's clock, not the wall's.
"""

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from recording import record

from rlhf_minimal.cli import main

SEEDS = range(3)
ARMS = ("defaults", "small")
SMALL = ["--steps", "20", "--rows", "600", "--held-out", "200"]
COURSE = (  # a command, and the run that it starts from
    ("pretrain", None),
    ("sft", "pretrain"),
    ("reward", "sft"),
)


def run(arm: str, seed: int) -> dict[str, Any]:
    """One course, as it is recorded."""
    before, kept = os.getcwd(), {}
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for command, start in COURSE:
                began = time.process_time()
                words = [
                    command,
                    "--task",
                    "reviews",
                    "--seed",
                    str(seed),
                    "--out",
                    command,
                ]
                words += ["--start", start] if start else []
                argv = words + (SMALL if arm == "small" else [])
                if main(argv) != 0:
                    raise RuntimeError(f"no reward model was made: {argv}")
                seconds[command] = round(time.process_time() - began, 1)
                kept[command] = json.loads(
                    (Path(command) / "evaluation.json").read_text()
                )
        finally:
            os.chdir(before)
    judged, score = kept["reward"], kept["sft"]["score"]
    calibration = judged["calibration"]
    return {
        "sft_gold": round(score["mean"], 3),
        "sft_gold_std": round(score["std"], 3),
        "accuracy": round(judged["accuracy"], 4),
        "expected_accuracy": round(judged["expected_accuracy"], 4),
        "bayes": round(judged["bayes"], 4),
        "gold_correlation": round(judged["gold_correlation"], 4),
        "calibration_error": round(calibration["error"], 4),
        "calibration_spread": round(calibration["spread"], 4),
        "calibration_floor": round(calibration["floor"], 4),
        "seconds": seconds,
        "losses": [round(kept[command]["loss"], 4) for command, _ in COURSE],
        "table": calibration["table"],
    }


if __name__ == "__main__":
    record(__file__, ARMS, run, seeds=SEEDS)
