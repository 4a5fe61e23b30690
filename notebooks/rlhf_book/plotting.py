"""The book's figures: one style, one colour a family of rows, one for each sign of the advantage. Arrays in, Axes out.

Nothing here knows of training or of models, and no function opens or saves a file.
"""

import matplotlib as mpl

from rlhf_minimal.extras.curves import CONTROL, STYLE, learning_curve, running_mean
from rlhf_minimal.facts import facts_of, families, missing

__all__ = [
    "CONTROL",
    "LINES",
    "NEGATIVE",
    "POSITIVE",
    "STYLE",
    "color",
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
    """Makes the book's style the default of every figure drawn from here on."""
    mpl.rcParams.update(STYLE)


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
