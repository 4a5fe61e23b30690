"""The book's figures: one style, one colour a family of rows, one for each sign of the advantage. Arrays in, Axes out.

Nothing here knows of training or of models, and no function opens or saves a file.
"""

import io
import math
import re
import sys
from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from rlhf_book.facts import facts_of, families, missing
from rlhf_minimal.lab.plot_style import CONTROL, STYLE, running_mean

__all__ = [
    "CONTROL",
    "LINES",
    "NEGATIVE",
    "POSITIVE",
    "STYLE",
    "as_svg",
    "color",
    "dial",
    "learning_curve",
    "line_style",
    "running_mean",
    "use_style",
]

# Okabe and Ito's palette for the two signs: told apart with any kind of colour vision, and in grey print.
POSITIVE = "#0072B2"  # an advantage above zero: do it more
NEGATIVE = "#D55E00"  # an advantage below zero: do it less

# How a line is drawn, in points on and off. Rows of one family share a colour and are told apart by these.
LINES: dict[str, tuple[float, ...]] = {
    "solid": (),
    "dashed": (5, 2),
    "dotted": (1, 1.5),
    "dashdot": (6, 2, 1, 2),
    "dashdotdot": (6, 2, 1, 2, 1, 2),
}


def use_style() -> None:
    """Makes the book's style the default of every figure drawn from here on; in a notebook figures become drawings.

    A setting made later, such as `set_matplotlib_formats("png")` of `matplotlib_inline`, takes the place of the latter.
    """
    mpl.rcParams.update(STYLE)
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is not None:
        # The backend chooses its own format when it is first imported, and would undo the choice if that came later.
        import matplotlib_inline.backend_inline  # noqa: F401

        formatters = shell.display_formatter.formatters
        for formatter in formatters.values():
            formatter.pop(Figure, None)
        formatters["image/svg+xml"].for_type(Figure, as_svg)


# Figures that were drawn twice are to be the same bytes: the names inside depend on nothing but what they name.
SALT = "rlhf"
PLACE = re.compile(r"scale\([^)]*\)|\d+\.\d{3,}")  # of letters the scale is kept


def as_svg(figure: Figure) -> str:
    """A figure as a drawing that is sharp at every size, the same text whenever and wherever it is drawn.

    Letters are outlines, since a reader's computer need not have our font. Places are given to a hundredth of a point.

    Args:
        figure: What is drawn; it stays open.

    Returns:
        The element `svg` and nothing before it: EPUB and pages that take it in want no declaration.

    Example:
        >>> as_svg(Figure()).startswith("<svg xmlns:xlink=")
        True
    """
    text = io.StringIO()
    silent = dict.fromkeys(("Creator", "Date", "Format", "Type"))  # no version, no time
    with mpl.rc_context({"svg.hashsalt": SALT, "svg.fonttype": "path"}):
        figure.savefig(text, format="svg", bbox_inches="tight", metadata=silent)
    drawn = text.getvalue()
    # In one line: a notebook's file wraps every line of an output, which would be a third of its size.
    drawn = " ".join(drawn[drawn.index("<svg ") :].split()).replace("> <", "><")
    return PLACE.sub(_shortened, drawn)


def _shortened(place: re.Match[str]) -> str:
    return (
        place[0]
        if place[0][0] == "s"
        else f"{float(place[0]):.2f}".rstrip("0").rstrip(".")
    )


def color(algorithm: str) -> str:
    """The colour of an algorithm's family; black for one that is not of the table.

    Example:
        >>> color("grpo")
        '#1f77b4'
    """
    return (
        families()[facts_of(algorithm).family].color
        if not missing(algorithm)
        else "#000000"
    )


def line_style(algorithm: str) -> str | tuple[float | int, tuple[float | int, ...]]:
    """How an algorithm's line is drawn, beside its family's colour; solid for one that is not of the table.

    Example:
        >>> line_style("rloo")
        (0, (5, 2))
    """
    dashes = LINES[facts_of(algorithm).line] if not missing(algorithm) else ()
    return (0, dashes) if dashes else "solid"


def learning_curve(
    ax: Axes,
    steps: ArrayLike,
    runs: Sequence[ArrayLike],
    *,
    label: str,
    color: str,
    smooth: int = 1,
) -> Axes:
    """Every run as a thin line and their mean as a thick one, since a mean alone would hide a seed that failed.

    Args:
        ax: Where to draw.
        steps: [N] training steps.
        runs: One array [N] per seed.
        label: For the legend; with several seeds, their number is added.
        color: Colour of all lines.
        smooth: Width in steps of the running mean over the past; 1 draws what was measured.

    Returns:
        `ax`.

    Raises:
        ValueError: If a run and `steps` differ in length; the message gives both lengths.
    """
    x = np.asarray(steps)
    curves = np.stack([running_mean(run, smooth) for run in runs])
    if curves.shape[1:] != x.shape:
        raise ValueError(
            f"each run needs one value per step ({len(x)}); got {curves.shape[1]}"
        )
    if len(curves) > 1:
        for curve in curves:
            ax.plot(x, curve, color=color, linewidth=0.8, alpha=0.4)
        label = f"{label}: mean of {len(curves)} seeds"
    ax.plot(x, curves.mean(0), color=color, label=label)
    return ax


def dial(ax: Axes, hours: str, places: Sequence[int], right: Sequence[bool]) -> Axes:
    """A clock whose hand goes from hour to hour: the path as arrows, numbered, in the colours of the two signs.

    Args:
        ax: Where to draw.
        hours: A letter for each hour, the first at the top, the others clockwise.
        places: The hours in order, the first is where the hand starts.
        right: Whether each move is right; one fewer than there are places.

    Returns:
        The axes. A move that stays at its hour is a dot.
    """
    turn = [2 * math.pi * i / len(hours) for i in range(len(hours))]
    points = [(math.sin(angle), math.cos(angle)) for angle in turn]
    for hour, (x, y) in zip(hours, points, strict=True):
        ax.text(1.13 * x, 1.13 * y, hour, ha="center", va="center")
    moves = zip(places[:-1], places[1:], right, strict=True)
    for number, (start, end, is_right) in enumerate(moves, start=1):
        shade = POSITIVE if is_right else NEGATIVE
        (x, y), (u, v) = points[start], points[end]
        at = (0.4 * x + 0.6 * u, 0.4 * y + 0.6 * v)
        if start == end:
            ax.plot([x], [y], "o", color=shade)
            at = (0.8 * x, 0.8 * y)
        else:
            style = {
                "arrowstyle": "-|>",
                "color": shade,
                "linestyle": "-" if is_right else "--",
            }
            ax.annotate("", (u, v), (x, y), arrowprops=style)
        ground = {
            "boxstyle": "circle,pad=0.1",
            "facecolor": "white",
            "edgecolor": "none",
        }
        ax.text(*at, str(number), color=shade, ha="center", va="center", bbox=ground)
    ax.set(xlim=(-1.3, 1.3), ylim=(-1.3, 1.3), aspect="equal")
    ax.axis("off")
    return ax
