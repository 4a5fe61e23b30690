"""The README's learning curve: five seeds of the default run, and the same five under random rewards.

    python notebooks/results/learning_curve.py           runs all ten (about ten minutes on one core) and draws
    python notebooks/results/learning_curve.py --draw    draws again from the recorded numbers

Writes notebooks/results/learning-curve.json and book/images/learning-curve.png. Seeds and settings were fixed before
the first of these runs; all seeds are shown.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import recording
import torch
from matplotlib.figure import Figure

from rlhf_book import plotting
from rlhf_minimal.cli import main

ROOT = Path(__file__).parents[2]
DATA = ROOT / "notebooks" / "results" / "learning-curve.json"
PICTURE = ROOT / "book" / "images" / "learning-curve.png"
SEEDS = range(5)


def record() -> None:
    runs = []
    for reward in ("verifier", "random"):
        for seed in SEEDS:
            with tempfile.TemporaryDirectory() as folder:
                words = ["train", "grpo", "--seed", str(seed), "--reward", reward]
                began = time.perf_counter()
                if main([*words, "--out", f"{folder}/run"]):
                    sys.exit("a run failed; nothing is recorded")
                seconds = time.perf_counter() - began
                steps = [
                    json.loads(line)
                    for line in Path(folder, "run", "metrics.jsonl")
                    .read_text()
                    .splitlines()
                ]
                evaluation = json.loads(
                    Path(folder, "run", "evaluation.json").read_text()
                )
            shares = {
                f"{when}_{how}": evaluation[when][how]["share"]
                for when in ("before", "after")
                for how in ("sampled", "greedy")
            }
            runs.append(
                {
                    "command": "python -m rlhf_minimal " + " ".join(words),
                    "reward": reward,
                    "seed": seed,
                    **shares,
                }
                | {
                    "seconds": round(seconds, 1),
                    "accuracy": [round(step["accuracy"], 4) for step in steps],
                }
            )
    record = {
        "command": "python notebooks/results/learning_curve.py",
        "versions": recording.versions(),
        "threads": torch.get_num_threads(),
        "held_out_problems": 1000,
        "runs": runs,
    }
    recording.write(DATA, json.dumps(record) + "\n")


def draw() -> None:
    runs = json.loads(DATA.read_text())["runs"]
    plotting.use_style()
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    ax = figure.add_subplot()
    for reward, label, color in (
        ("verifier", "GRPO, reward from the verifier", plotting.color("grpo")),
        ("random", "the same, reward from a coin", plotting.CONTROL),
    ):
        curves = [run["accuracy"] for run in runs if run["reward"] == reward]
        steps = range(1, len(curves[0]) + 1)
        plotting.learning_curve(ax, steps, curves, label=label, color=color, smooth=5)
    ax.set(
        xlabel="training step (512 answers each)",
        ylabel="right answers, mean of five steps",
        ylim=(0, 1.02),
    )
    ax.set_title(
        "Three-digit addition, from a start that was taught wrong", fontsize=10
    )
    ax.legend(loc="center right")
    PICTURE.parent.mkdir(exist_ok=True)
    figure.savefig(PICTURE, dpi=160)


if __name__ == "__main__":
    if "--draw" not in sys.argv[1:]:
        record()
    draw()
