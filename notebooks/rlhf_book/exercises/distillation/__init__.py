"""The exercises of the chapter on distillation, one a file, those of the chapter first, then that of its depth."""

from .bugs import BUGS
from .centred_gap import CENTRED_GAP
from .flee import FLEE
from .rest import REST

__all__ = ["BUGS", "EXERCISES"]

EXERCISES = (CENTRED_GAP, REST, FLEE)
