"""The exercises that the whiteboard adds to those of the chapters, one a file, in the order in which it asks them."""

from .dpo import DPO
from .logprobs import LOGPROBS
from .masked_mean import MASKED_MEAN
from .reward_loss import REWARD_LOSS
from .sequence_ratio import SEQUENCE_RATIO

__all__ = ["BUGS", "EXERCISES"]

EXERCISES = (LOGPROBS, MASKED_MEAN, SEQUENCE_RATIO, REWARD_LOSS, DPO)
BUGS = ()
