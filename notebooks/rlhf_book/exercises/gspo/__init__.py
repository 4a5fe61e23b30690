"""The exercises of the chapter on GSPO, one a file, those of the chapter first, then those of its depth."""

from .bugs import BUGS
from .gap import GAP
from .gradient import GRADIENT
from .jump import JUMP
from .loss import LOSS
from .noise import NOISE
from .reweight import REWEIGHT
from .token import TOKEN

__all__ = ["BUGS", "EXERCISES"]

EXERCISES = (JUMP, NOISE, GAP, REWEIGHT, LOSS, GRADIENT, TOKEN)
