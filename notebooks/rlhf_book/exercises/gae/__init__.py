"""The exercises of the chapter on generalised advantage estimation, one a file, in the order of the chapter."""

from ..exercise import Exercise
from .bugs import BUGS
from .error import ERROR
from .n_step import N_STEP
from .noise import NOISE
from .push import PUSH
from .recursion import RECURSION
from .value_loss import VALUE_LOSS
from .weights import WEIGHTS

__all__ = ["BUGS", "EXERCISES"]

EXERCISES: tuple[Exercise, ...] = (
    N_STEP,
    WEIGHTS,
    RECURSION,
    ERROR,
    NOISE,
    PUSH,
    VALUE_LOSS,
)
