"""The exercises of the chapter on agents, one a file."""

from .bugs import BUGS
from .own_mask import OWN_MASK
from .price import PRICE
from .token_weights import TOKEN_WEIGHTS

__all__ = ["BUGS", "EXERCISES"]

EXERCISES = (TOKEN_WEIGHTS, OWN_MASK, PRICE)
