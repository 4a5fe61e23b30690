"""The exercises on RLOO, one a file: first those of the core, then those of the chapter in depth."""

from .bugs import BUGS
from .maximum import MAXIMUM
from .shrinkage import SHRINKAGE
from .sizes import SIZES

__all__ = ["BUGS", "EXERCISES"]

EXERCISES = (MAXIMUM, SHRINKAGE, SIZES)
