"""The exercises of the chapter on making it fast, one a file, in the order of the chapter."""

from .alive import ALIVE
from .bugs import BUGS
from .cut import CUT
from .head import HEAD
from .idle import IDLE
from .prefix import PREFIX

__all__ = ["BUGS", "EXERCISES"]

EXERCISES = (ALIVE, PREFIX, CUT, IDLE, HEAD)
