"""The exercises of the chapter on the anatomy of the algorithms, one a file."""

from .described import DESCRIBED
from .prompt_mean import PROMPT_MEAN
from .which_gate import WHICH_GATE

__all__ = ["BUGS", "EXERCISES"]

EXERCISES = (WHICH_GATE, DESCRIBED, PROMPT_MEAN)
BUGS = ()
