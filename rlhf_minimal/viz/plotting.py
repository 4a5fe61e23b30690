"""The book's figures: one style, one colour per algorithm, one for each sign of the advantage. Arrays in, Axes out.

Nothing here knows of training or of models, and no function opens or saves a file.
"""

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

# Okabe and Ito's palette for the two signs: told apart with any kind of colour vision, and in grey print.
POSITIVE = "#0072B2"  # an advantage above zero: do it more
NEGATIVE = "#D55E00"  # an advantage below zero: do it less
CONTROL = "#808080"  # control arms, such as random rewards

# One colour per algorithm for the whole book; a family shares a hue.
COLORS: dict[str, str] = {
    "reinforce": "#222222",
    "rloo": "#7a5195",
    "ppo": "#d62728",
    "reinforce_pp": "#ff9896",
    "grpo": "#1f77b4",
    "dr_grpo": "#17becf",
    "dapo": "#2ca02c",
    "gspo": "#ff7f0e",
    "gspo_token": "#ffbb78",
    "gmpo": "#bcbd22",
    "cispo": "#8c564b",
    "sapo": "#e377c2",
    "kimi_k2": "#9467bd",
}

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


def use_style() -> None:
    """Makes the book's style the default of every figure drawn from here on."""
    mpl.rcParams.update(STYLE)


def color(algorithm: str) -> str:
    """The colour of an algorithm; black for one that is not of the table.

    Example:
        >>> color("grpo")
        '#1f77b4'
    """
    return COLORS.get(algorithm, "#000000")


def learning_curve(
    ax: Axes,
    steps: ArrayLike,
    runs: Sequence[ArrayLike],
    *,
    label: str,
    color: str,
    smooth: int = 1,
) -> Axes:
    """Every run as a thin line and their mean as a thick one: a mean alone would hide the seed that failed.

    Args:
        ax: Where to draw.
        steps: [N] training steps.
        runs: One array [N] per seed.
        label: For the legend; the number of seeds is added to it when there are several.
        color: Of all the lines.
        smooth: Width in steps of the running mean over the past; 1 draws what was measured.

    Returns:
        `ax`.

    Raises:
        ValueError: If a run and `steps` differ in length; the message gives both lengths.
    """
    x = np.asarray(steps)
    curves = np.stack([running_mean(run, smooth) for run in runs])
    if curves.shape[1:] != x.shape:
        raise ValueError(f"each run needs one value per step ({len(x)}); got {curves.shape[1]}")
    if len(curves) > 1:
        for curve in curves:
            ax.plot(x, curve, color=color, linewidth=0.8, alpha=0.4)
        label = f"{label}: mean of {len(curves)} seeds"
    ax.plot(x, curves.mean(0), color=color, label=label)
    return ax


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
