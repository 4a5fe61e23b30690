"""The exercises of the chapter on diagnosis, one a file."""

from .between import BETWEEN
from .bugs import BUGS
from .push import PUSH
from .verdict import VERDICT

__all__ = ["BUGS", "EXERCISES"]

EXERCISES = (VERDICT, PUSH, BETWEEN)
