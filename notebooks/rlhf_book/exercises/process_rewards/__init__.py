"""The exercises of the chapter on process rewards, one a file, those of the chapter first, then that of its depth."""

from .bugs import BUGS
from .implicit import IMPLICIT
from .ranked import RANKED
from .rollouts import ROLLOUTS
from .shaped import SHAPED
from .shared import SHARED

__all__ = ["BUGS", "EXERCISES"]

EXERCISES = (ROLLOUTS, SHAPED, IMPLICIT, RANKED, SHARED)
