"""The exercises of the chapter on Kimi's losses, one a file, those of the chapter first, then those of its depth."""

from .bugs import BUGS
from .estimate import ESTIMATE
from .gap import GAP
from .pairs import PAIRS
from .partial import PARTIAL

__all__ = ["BUGS", "EXERCISES"]

EXERCISES = (GAP, PAIRS, PARTIAL, ESTIMATE)
