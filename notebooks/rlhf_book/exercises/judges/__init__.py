"""The exercises of the chapter on judges, one a file."""

from .both_orders import BOTH_ORDERS
from .bugs import BUGS
from .dropped import DROPPED
from .points import POINTS

__all__ = ["BUGS", "EXERCISES"]

EXERCISES = (POINTS, DROPPED, BOTH_ORDERS)
