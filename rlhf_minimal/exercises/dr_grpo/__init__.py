"""The exercises of the chapter on Dr. GRPO, one a file, in the order of the chapter."""

from ..exercise import Exercise
from .bugs import BUGS

__all__ = ["BUGS", "EXERCISES"]

EXERCISES: tuple[Exercise, ...] = ()
