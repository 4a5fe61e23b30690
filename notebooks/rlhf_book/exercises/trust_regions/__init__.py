"""The exercises on trust regions, one a file: first those of the core, then that of the chapter in depth."""

from .beta import BETA
from .bound import BOUND
from .bugs import BUGS
from .length import LENGTH
from .product import PRODUCT

__all__ = ["BUGS", "EXERCISES"]

EXERCISES = (PRODUCT, LENGTH, BETA, BOUND)
