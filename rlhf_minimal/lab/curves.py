"""What the report of a run shows: the style of its figure, running means, metrics of its health. Arrays in and out.

Nothing here depends on training or models, and no function reads or writes a file.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

POLICY = "#1f77b4"  # a run with its task's own reward
CONTROL = "#808080"  # control arms, such as random rewards

# What says whether a run is healthy, besides its reward: those of them that a run has are drawn under its curve.
HEALTH = ("kl", "entropy", "clip_fraction", "grad_norm", "length", "truncated", "dead_groups", "explained_variance")

STYLE: dict[Any, Any] = {
    "figure.figsize": (6.4, 3.6),
    "figure.dpi": 100,
    "savefig.dpi": 160,
    "savefig.bbox": "tight",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
}


def running_mean(values: ArrayLike, width: int) -> np.ndarray:
    """Mean of each value and up to `width` - 1 before it.

    Example:
        >>> running_mean([0.0, 1.0, 2.0], 2).tolist()
        [0.0, 0.5, 1.5]
    """
    array = np.asarray(values, dtype=float)
    total = np.cumsum(np.concatenate([[0.0], array]))
    ends = np.arange(1, len(array) + 1)
    starts = np.maximum(ends - width, 0)
    return (total[ends] - total[starts]) / (ends - starts)


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
