"""The picture of ppo-rlhf.json: what optimising a reward model does to the score that it stands for.

    python notebooks/results/over_optimisation.py

Writes book/images/over-optimisation.png. Left: a step of training is a point, from the fine-tuned start on the left to
wherever the arm ends; every seed is drawn. Right: the end of every run, and what choosing the best of n gives.
"""

import json
import math
import statistics
from pathlib import Path
from typing import Any

from matplotlib import colormaps
from matplotlib.figure import Figure
from ppo_rlhf import ARMS, BEST_OF, kl_of_best_of

from rlhf_book import plotting
from rlhf_minimal.tasks.reviews import BEST

ROOT = Path(__file__).parents[2]
DATA = ROOT / "notebooks" / "results" / "ppo-rlhf.json"
AXIS = r"$\sqrt{\mathrm{KL}}$ from the start (nats a review)"
PICTURE = ROOT / "book" / "images" / "over-optimisation.png"


def draw(record: dict[str, Any]) -> Figure:
    """Two panels, true score over distance."""
    plotting.use_style()
    figure = Figure(figsize=(8.4, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    runs = record["runs"]

    free = [run for run in runs if run["arm"] == "beta-0"]
    for run in free:
        kl, gold, proxy = (
            run[f"{name}_of_step"] for name in ("kl_sequence", "gold", "reward")
        )
        distance = [math.sqrt(max(nats, 0.0)) for nats in kl]
        left.plot(
            distance,
            gold,
            color=plotting.NEGATIVE,
            linewidth=1,
            label="true score" if run is free[0] else None,
        )
        unit = [gold_of(record, score) for score in proxy]
        left.plot(
            distance,
            unit,
            color=plotting.POSITIVE,
            linewidth=1,
            label="reward model" if run is free[0] else None,
        )
    left.set(xlabel=AXIS, ylabel="score of sampled reviews")
    left.set_title(f"no leash: {record['steps']} steps, {len(free)} seeds", fontsize=10)
    left.legend(loc="lower left")

    shades = colormaps["viridis"]
    for number, (arm, beta) in enumerate(ARMS.items()):
        mine = [run for run in runs if run["arm"] == arm]
        color = shades(number / len(ARMS))
        kl, gold = ([run[name] for run in mine] for name in ("kl", "gold"))
        right.plot(
            [math.sqrt(nats) for nats in kl],
            gold,
            "o",
            color=color,
            markersize=5,
            label=f"{beta:g}",
        )
    chosen = [run["best_of_n_gold"] for run in free]
    means = [statistics.mean(values) for values in zip(*chosen, strict=True)]
    right.plot(
        [math.sqrt(kl_of_best_of(n)) for n in BEST_OF],
        means,
        "x--",
        color=plotting.CONTROL,
        linewidth=1,
        label="best of n",
    )
    right.set(xlabel=AXIS)
    right.set_title("where each coefficient ends", fontsize=10)
    right.legend(title="KL coefficient", fontsize=8, title_fontsize=8, loc="center")
    for ax in (left, right):
        ax.axhline(BEST, color="#b0b0b0", linewidth=0.8, linestyle="--", zorder=0)
    return figure


def gold_of(record: dict[str, Any], score: float) -> float:
    """A reward model's score on the true score's axis: the straight line through the start and the best of 128.

    The two scores have different units, and any line puts one on the other's axis. This one makes them equal where the
    reward model was trained.
    """
    runs = [run for run in record["runs"] if "best_of_n_gold" in run]
    ends = []
    for name in ("proxy", "gold"):
        means = [
            statistics.mean(run[f"best_of_n_{name}"][i] for run in runs)
            for i in (0, -1)
        ]
        ends.append(means)
    (proxy_low, proxy_high), (gold_low, gold_high) = ends
    return gold_low + (score - proxy_low) * (gold_high - gold_low) / (
        proxy_high - proxy_low
    )


if __name__ == "__main__":
    draw(json.loads(DATA.read_text())).savefig(PICTURE, dpi=160)
    print(f"wrote {PICTURE.relative_to(ROOT)}")
