"""The exercises of the chapter on mixtures of experts, one a file, those of the chapter first, then those of its depth."""

from .balance import BALANCE
from .bugs import BUGS
from .capacity import CAPACITY
from .crossing import CROSSING
from .gradient import GRADIENT
from .layers import LAYERS

__all__ = ["BUGS", "EXERCISES"]

EXERCISES = (LAYERS, GRADIENT, BALANCE, CROSSING, CAPACITY)
