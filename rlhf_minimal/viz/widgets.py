"""Figures that move: the same `.mjs` modules that the pages of the book use, as widgets for notebooks.

They compute in the browser. Saved with the notebook's widget state they stay alive in the published page, without a
kernel and without a network. Needs the extra `notebooks` (anywidget).
"""

from collections.abc import Sequence
from pathlib import Path

import anywidget
import traitlets

_HERE = Path(__file__).parent

GROUP_EXPLORER_ALT = (
    "Sliders for the rewards of a group of completions; beside each, three bars: its z-score, its reward minus the "
    "group's mean, and its reward minus the mean of the others. A sentence says what the group teaches."
)


class GroupExplorer(anywidget.AnyWidget):
    """Move the rewards of a group; see its z-scores, centred rewards and leave-one-out advantages.

    Chapter: grpo.

    Args:
        rewards: 2 to 16 numbers between 0 and 2; the sliders move in steps of 0.05.
        eps: added to the standard deviation.
        ddof: 1 = sample standard deviation, 0 = population.
        alt: what a reader should know who does not see it.

    Raises:
        traitlets.TraitError: too few or too many rewards, a reward out of range, another ddof.

    Example:
        >>> GroupExplorer([1.0, 0.0, 0.0, 0.0]).rewards
        [1.0, 0.0, 0.0, 0.0]
    """

    _esm = _HERE / "group_explorer.mjs"
    rewards = traitlets.List(traitlets.Float(min=0.0, max=2.0), minlen=2, maxlen=16).tag(sync=True)
    eps = traitlets.Float(1e-4, min=0.0).tag(sync=True)
    ddof = traitlets.Enum([0, 1], default_value=1).tag(sync=True)
    alt = traitlets.Unicode(GROUP_EXPLORER_ALT).tag(sync=True)

    def __init__(
        self, rewards: Sequence[float] = (1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0), *, eps: float = 1e-4, ddof: int = 1
    ):
        super().__init__(rewards=[float(reward) for reward in rewards], eps=eps, ddof=ddof)

    def __repr__(self) -> str:
        return f"[Interactive figure. {self.alt}]"
