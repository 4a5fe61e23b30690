"""The exercises of the chapter on DAPO, one a file, those of the chapter first, then that of its depth."""

from .bonus import BONUS
from .bugs import BUGS
from .price import PRICE
from .room import ROOM

__all__ = ["BUGS", "EXERCISES"]

EXERCISES = (ROOM, PRICE, BONUS)
