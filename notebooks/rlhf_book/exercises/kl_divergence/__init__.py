"""The exercises of the chapter on KL divergence, one a file, those of the chapter first, then those of its depth."""

from .bugs import BUGS
from .control import CONTROL
from .optimum import OPTIMUM
from .straight import STRAIGHT
from .support import SUPPORT
from .variate import VARIATE

__all__ = ["BUGS", "EXERCISES"]

EXERCISES = (VARIATE, OPTIMUM, STRAIGHT, SUPPORT, CONTROL)
