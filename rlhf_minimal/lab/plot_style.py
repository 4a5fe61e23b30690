"""How the curves of runs are drawn, in a run's picture and in the book: colours, style, the running mean."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

POLICY = "#1f77b4"  # a run with its task's own reward
CONTROL = "#808080"  # control arms, such as random rewards

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
