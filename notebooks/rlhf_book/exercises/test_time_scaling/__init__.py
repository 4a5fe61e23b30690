"""The exercises of the chapter on test-time scaling, one a file, those of the chapter first, then those of its depth."""

from .all_of import ALL_OF
from .best_of import BEST_OF
from .bugs import BUGS
from .next_sample import NEXT_SAMPLE
from .vote import VOTE

__all__ = ["BUGS", "EXERCISES"]

EXERCISES = (ALL_OF, NEXT_SAMPLE, VOTE, BEST_OF)
