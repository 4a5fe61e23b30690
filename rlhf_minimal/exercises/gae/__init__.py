"""The exercises of the chapter on generalised advantage estimation, one a file, in the order of the chapter."""

from ..exercise import Exercise
from .bugs import BUGS

__all__ = ["BUGS", "EXERCISES"]

EXERCISES: tuple[Exercise, ...] = ()
