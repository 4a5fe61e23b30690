"""The exercises of the chapter on DeepSeek-R1, one a file."""

from .bugs import BUGS
from .decided import DECIDED
from .price import PRICE
from .scale import SCALE

__all__ = ["BUGS", "EXERCISES"]

EXERCISES = (DECIDED, PRICE, SCALE)
