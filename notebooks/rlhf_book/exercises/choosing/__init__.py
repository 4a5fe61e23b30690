"""The exercises of the chapter on choosing, one a file."""

from .bugs import BUGS
from .honest import HONEST
from .room import ROOM
from .seeds import SEEDS

__all__ = ["BUGS", "EXERCISES"]

EXERCISES = (SEEDS, HONEST, ROOM)
