"""The exercises of the chapter on reward models, one a file, those of the chapter first, then those of its depth."""

from .bugs import BUGS
from .constants import FREE_NUMBERS
from .flipped import FLIPPED
from .from_wins import FROM_WINS
from .rise import RISE

__all__ = ["BUGS", "EXERCISES"]

EXERCISES = (FLIPPED, FROM_WINS, RISE, FREE_NUMBERS)
