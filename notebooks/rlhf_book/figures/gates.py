"""The numbers that the gate gallery draws, computed here: the page's module holds no row, no formula and no colour."""

import torch

from rlhf_book import plotting
from rlhf_minimal import ALGORITHMS, gradient_weight

REACH = 3  # the ratio runs from 2^-3 to 2^3
STEP = 0.01  # in the logarithm to base 2: a pixel of the picture
TEXT_COLOR = (
    "currentColor"  # what a browser calls the colour of the text around a figure
)


def gate_gallery(step: float = STEP) -> dict:
    """The weight on a token's score over the ratio, for each row of the table and each sign of the advantage.

    Rows with one gate share a curve. Weights are rounded to seven digits, far below what the picture shows.

    Args:
        step: Between two ratios, in the logarithm to base 2; a divisor of twice the reach.

    Returns:
        `reach` and `step` of the axis; `curves`, each {"1": weights, "-1": weights}; `rows`, each with its name, the
        number of its curve, its colour and its dashes in points.

    Example:
        >>> gallery = gate_gallery()
        >>> gallery["rows"][0]
        {'name': 'reinforce', 'curve': 0, 'color': 'currentColor', 'dashes': []}
        >>> len(gallery["curves"][0]["1"])
        601
    """
    exponents = (
        torch.arange(round(2 * REACH / step) + 1, dtype=torch.float64) * step - REACH
    )
    curves: list[dict[str, list[float]]] = []
    rows = []
    for name in ALGORITHMS:
        curve = {str(sign): _weights(name, exponents, sign) for sign in (1, -1)}
        if curve not in curves:
            curves.append(curve)
        rows.append(
            {
                "name": name,
                "curve": curves.index(curve),
                "color": _color(name),
                "dashes": _dashes(name),
            }
        )
    return {"reach": REACH, "step": step, "curves": curves, "rows": rows}


def _weights(name: str, exponents: torch.Tensor, sign: int) -> list[float]:
    return [
        float(f"{weight:.7g}")
        for weight in gradient_weight(name, 2.0**exponents, float(sign)).tolist()
    ]


def _color(name: str) -> str:
    """The row's colour; nearly black cannot be seen on a dark page, so it is the colour of the text there."""
    color = plotting.color(name)
    lightest = max(int(color[i : i + 2], 16) for i in (1, 3, 5))
    return TEXT_COLOR if lightest < 0x40 else color


def _dashes(name: str) -> list[float | int]:
    style = plotting.line_style(name)
    return [] if isinstance(style, str) else list(style[1])
