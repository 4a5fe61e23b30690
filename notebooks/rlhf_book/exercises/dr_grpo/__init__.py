"""The exercises of the chapter on Dr. GRPO, one a file, in the order of the chapter."""

from .bugs import BUGS
from .effective_reward import EFFECTIVE_REWARD
from .loss import LOSS
from .micro import MICRO
from .objective import OBJECTIVE
from .residual import RESIDUAL
from .stop_drift import STOP_DRIFT
from .weights import WEIGHTS

__all__ = ["BUGS", "EXERCISES"]

EXERCISES = (STOP_DRIFT, MICRO, EFFECTIVE_REWARD, RESIDUAL, OBJECTIVE, WEIGHTS, LOSS)
