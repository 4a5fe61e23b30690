"""The book's figures: one style, one colour per algorithm, one for each sign of the advantage. Arrays in, Axes out.

Nothing here knows of training or of models, and no function opens or saves a file.
"""

import matplotlib as mpl

from rlhf_minimal.extras.curves import CONTROL, STYLE, learning_curve, running_mean

__all__ = ["COLORS", "CONTROL", "NEGATIVE", "POSITIVE", "STYLE", "color", "learning_curve", "running_mean", "use_style"]

# Okabe and Ito's palette for the two signs: told apart with any kind of colour vision, and in grey print.
POSITIVE = "#0072B2"  # an advantage above zero: do it more
NEGATIVE = "#D55E00"  # an advantage below zero: do it less

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
    "reinforce_pp_baseline": "#e7969c",
    "icepop": "#6baed6",
    "deepseek_v32": "#08519c",
    "dppo": "#843c39",
    "scalerl": "#c49c94",
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
