"""The exercises of the chapter on PPO for RLHF, one a file, in the order of the chapter."""

from ..exercise import Exercise
from .best_of_n import BEST_OF_N
from .bugs import BUGS
from .bytes import BYTES
from .slope import SLOPE
from .threshold import THRESHOLD

__all__ = ["BUGS", "EXERCISES"]

EXERCISES: tuple[Exercise, ...] = (THRESHOLD, SLOPE, BYTES, BEST_OF_N)
