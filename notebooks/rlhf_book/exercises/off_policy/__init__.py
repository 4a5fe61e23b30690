"""The exercises of the chapter on off-policy data, one a file, those of the chapter first, then that of its depth."""

from .break_even import BREAK_EVEN
from .bugs import BUGS
from .reach import REACH
from .sample_size import SAMPLE_SIZE
from .versions import VERSIONS

__all__ = ["BUGS", "EXERCISES"]

EXERCISES = (SAMPLE_SIZE, BREAK_EVEN, VERSIONS, REACH)
