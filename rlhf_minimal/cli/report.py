"""The end of a run: its report as text, its numbers, and its picture, learning-curve.png."""

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rlhf_minimal.cli.console import in_brief, printable
from rlhf_minimal.cli.journal import mark, measure_of
from rlhf_minimal.evaluate import Evaluation
from rlhf_minimal.lab.plot_style import CONTROL, POLICY, STYLE, running_mean
from rlhf_minimal.metrics import Metrics
from rlhf_minimal.train import Recipe
from rlhf_minimal.training.checkpoints import clear_io_errors, write_file
from rlhf_minimal.training.run_folder import RunFolder

# What says whether a run is healthy, besides its reward: those of them that a run has are drawn under its curve.
HEALTH = ("kl", "entropy", "clip_fraction", "grad_norm", "length", "truncated", "dead_groups", "explained_variance")


def write_report(
    folder: RunFolder,
    text: str,
    measured: Mapping[str, Any],
    draw: Callable[[Axes, list[Metrics]], None],
    panels: Mapping[str, Sequence[float]] = MappingProxyType({}),
) -> None:
    """The end of a run, written into its folder and printed.

    Args:
        folder: The run's.
        text: The report, without a last line end.
        measured: What is kept as `evaluation.json`.
        draw: Puts the run's steps into the learning curve.
        panels: Other metrics of all steps, each drawn under the curve in a small picture of its own.
    """
    text = printable(text)  # it holds completions and names of one's own
    write_file(folder.report, text + "\n")
    write_file(folder.evaluation, json.dumps(measured, indent=2) + "\n")
    rows = -(-len(panels) // 2)
    figure = Figure(figsize=(6.4, 3.6 + 1.3 * rows), layout="constrained")
    with matplotlib.rc_context({**STYLE, "text.parse_math": False}):  # names may hold dollars
        grid = figure.add_gridspec(1 + rows, 2, height_ratios=[2.6, *[1] * rows])
        ax = figure.add_subplot(grid[0, :])
        draw(ax, folder.history())
        ax.legend()
        for place, (name, values) in enumerate(panels.items()):
            small = figure.add_subplot(grid[1 + place // 2, place % 2])
            small.plot(range(1, len(values) + 1), values, color=CONTROL, linewidth=1)
            small.set_title(name, fontsize=8, loc="left")
            small.tick_params(labelsize=7)
    with clear_io_errors(folder.picture):
        figure.savefig(folder.picture, dpi=120)
    print(f"\n{text}\n")
    print(f"run folder: {folder.path} (learning-curve.png, evaluation.json, metrics.jsonl, config.json, checkpoint/)")


def report_training(
    folder: RunFolder, recipe: Recipe, settings: dict[str, Any], before: Evaluation, after: Evaluation
) -> None:
    """The report of `train`: samples before and after, accuracies with their intervals, and the learning curve.

    Args:
        folder: The run's.
        recipe: What was trained.
        settings: The run's, as `config.json` keeps them.
        before: The start on the held-out problems.
        after: The same of the trained policy.
    """
    task = recipe.task
    rows = [("problem", "before", "after")]
    for i in range(0, min(8 * before.draws, len(before.samples.texts)), before.draws):
        one, other = (
            f"{in_brief(e.samples.texts[i])} {mark(task, float(e.samples.correct[i]))}" for e in (before, after)
        )
        rows.append((in_brief(before.samples.problems[i].prompt), one, other))
    first, width = (max(least, 2 + max(len(row[i]) for row in rows)) for i, least in enumerate((12, 16)))
    lines = [f"{problem:<{first}}{one:<{width}}{other}" for problem, one, other in rows]
    lines += ["", f"held-out {measure_of(task)}, {before.about}"]
    lines.append(f"{'':<12}{'before':<24}{'after':<24}")
    for name, one, other in zip(("sampled", "greedy"), before.in_words, after.in_words, strict=True):
        lines.append(f"{name:<12}{one:<24}{other:<24}")
    measured = health(folder.history())
    lines += ["", *in_lines(measured)]

    def draw(ax: Axes, history: list[Metrics]) -> None:
        name, limits = "accuracy", (0.0, 1.0)
        if task.score_range is not None:
            name, limits = "gold" if recipe.reward else "reward", task.score_range
        color = POLICY if settings["reward"] == "verifier" else CONTROL
        steps, right = ([row[column] for row in history] for column in ("step", name))
        ax.plot(steps, running_mean(right, 5), color=color, label=settings["algorithm"])
        ax.set(xlabel="training step", ylabel=f"{measure_of(task)}, sampled", ylim=limits)
        ax.set_title(f"{printable(task.about)}, seed {settings['seed']}, mean of 5 steps", fontsize=9)

    text = "\n".join(line.rstrip() for line in lines)
    write_report(folder, text, {"before": before.as_json(), "after": after.as_json()}, draw, measured)
    for command, what in (("sample", "try it"), ("diagnose", "check it")):
        print(f"{what + ':':<12}python -m rlhf_minimal {command} {shlex.quote(str(folder.path))}")


def health(history: Sequence[Mapping[str, int | float]]) -> dict[str, list[float]]:
    """The metrics of `HEALTH` that every step of a run has."""
    known = [name for name in HEALTH if history and all(name in row for row in history)]
    return {name: [float(row[name]) for row in history] for name in known}


def in_lines(measured: Mapping[str, Sequence[float]], width: int = 36) -> list[str]:
    r"""A line a metric: its name, the mean of its first and of its last five steps, and its course in blocks.

    Example:
        >>> print(*in_lines({"kl": [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]}), sep="\n")
        metric              first 5   last 5  from its lowest to its highest
        kl                      0.2      0.5  ▁▂▃▄▅▆▇█
    """
    lines = [f"{'metric':<19}{'first 5':>8}{'last 5':>9}  from its lowest to its highest"]
    for name, values in measured.items():
        parts = np.array([part.mean() for part in np.array_split(np.asarray(values, float), min(width, len(values)))])
        height = (parts - parts.min()) / (np.ptp(parts) or 1.0)
        blocks = "".join("▁▂▃▄▅▆▇█"[round(7 * x)] for x in height)
        lines.append(f"{name:<19}{np.mean(values[:5]):>8.3g}{np.mean(values[-5:]):>9.3g}  {blocks}")
    return lines
