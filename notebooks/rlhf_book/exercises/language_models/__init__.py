"""The exercises on language models, one a file."""

from .bugs import BUGS
from .masked_gradient import MASKED_GRADIENT
from .micro_weights import MICRO_WEIGHTS
from .two_decoders import TWO_DECODERS

__all__ = ["BUGS", "EXERCISES"]

EXERCISES = (MASKED_GRADIENT, MICRO_WEIGHTS, TWO_DECODERS)
