"""The exercises of the chapter on the clipped objective of PPO, one a file: the core's first, then the depth's."""

from .bugs import BUGS
from .leak import LEAK
from .length import LENGTH
from .loss import LOSS
from .promise import PROMISE
from .variance import VARIANCE
from .weight import WEIGHT

__all__ = ["BUGS", "EXERCISES"]

EXERCISES = (PROMISE, LEAK, VARIANCE, WEIGHT, LOSS, LENGTH)
