"""The exercises of the chapter on self-play, one a file."""

from .bugs import BUGS
from .capped import CAPPED
from .dose import DOSE
from .rounds import ROUNDS

__all__ = ["BUGS", "EXERCISES"]

EXERCISES = (CAPPED, DOSE, ROUNDS)
