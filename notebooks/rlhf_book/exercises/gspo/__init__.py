"""The exercises of the chapter on GSPO, one a file, in the order of the chapter."""

from .bugs import BUGS
from .gap import GAP
from .gradient import GRADIENT
from .loss import LOSS
from .noise import NOISE
from .reweight import REWEIGHT
from .token import TOKEN

__all__ = ["BUGS", "EXERCISES"]

EXERCISES = (REWEIGHT, GAP, NOISE, LOSS, GRADIENT, TOKEN)
