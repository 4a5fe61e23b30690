"""A record of the benchmark with numbers that were made up, for tests of what is made of it."""

import random
from typing import Any

from tests.results.scripts import module

script = module("row_benchmark")
BEST = 2  # place of the rate that wins everywhere, among the four


def made_up_run(
    name: str, row: str, seed: int, lr: float, *, ahead: tuple[str, ...] = ("reinforce",)
) -> dict[str, Any]:
    """What a run might have been: rows in `ahead` end 0.2 higher, the coin at 0.1, all others alike but for noise."""
    group = script.GROUPS[name]
    draw = random.Random(f"{name}/{row}/{seed}/{lr}")
    end = 0.1 if row == "coin" else 0.7 if row in ahead else 0.5
    end += draw.gauss(0, 0.01) - 0.05 * abs(group.rates.index(lr) - BEST)
    found = {"lr": lr, "samples": group.samples, "sampled": round(end, 4), "cpu": 3.0}
    if seed in script.TUNING:
        return found
    curve = [round(0.3 + (end - 0.3) * i / script.POINTS, 4) for i in range(script.POINTS)] + [found["sampled"]]
    inner = sum(curve[1:-1]) + (curve[0] + curve[-1]) / 2
    found |= {"greedy": min(1.0, end + 0.1), "area": round(inner / script.POINTS, 4), "entropy": 0.2, "kl": 1.5}
    found |= {"updates": group.steps * group.updates, "wall": 4.0, "curve": curve}
    return found | ({"proxy": 1.0} if group.reward == "model" else {})


def made_up_record(groups: tuple[str, ...] = tuple(script.GROUPS), left_out: int = 0, **options: Any) -> dict[str, Any]:
    """Runs of some groups, without the last few."""
    jobs = script.plan(groups)
    runs = []
    for job in jobs[: len(jobs) - left_out]:
        lr = job.lr or script.chosen(runs, job.group, job.row)
        key = {"group": job.group, "row": job.row, "seed": job.seed}
        runs.append(key | made_up_run(job.group, job.row, job.seed, lr, **options))
    head = {"command": "python notebooks/results/row_benchmark.py", **script.head()}
    return head | {"versions": {"torch": "0", "python": "3"}, "runs": runs}
