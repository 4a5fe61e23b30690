"""The exercises of the chapter on making it fast, one a file, those of the chapter first, then those of its depth."""

from .alive import ALIVE
from .bend import BEND
from .bugs import BUGS
from .cut import CUT
from .head import HEAD
from .idle import IDLE
from .prefix import PREFIX

__all__ = ["BUGS", "EXERCISES"]

EXERCISES = (BEND, ALIVE, PREFIX, CUT, IDLE, HEAD)
