"""The exercises on policy gradients, one a file: first those of the core, then those of the chapter in depth."""

from .action_baseline import ACTION_BASELINE
from .bugs import BUGS
from .length_push import LENGTH_PUSH
from .position_baseline import POSITION_BASELINE
from .samples import SAMPLES
from .score_norm import SCORE_NORM

__all__ = ["BUGS", "EXERCISES"]

EXERCISES = (SAMPLES, ACTION_BASELINE, LENGTH_PUSH, SCORE_NORM, POSITION_BASELINE)
