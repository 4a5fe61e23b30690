"""The exercises of the chapter on verifiable rewards, one a file, those of the chapter first, then those of its depth."""

from .audit import AUDIT
from .bugs import BUGS
from .length_pay import LENGTH_PAY
from .noisy_step import NOISY_STEP
from .spot_check import SPOT_CHECK

__all__ = ["BUGS", "EXERCISES"]

EXERCISES = (AUDIT, NOISY_STEP, LENGTH_PAY, SPOT_CHECK)
