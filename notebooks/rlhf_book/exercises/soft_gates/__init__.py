"""The exercises of the chapter on soft gates, one a file, those of the chapter first, then those of its depth."""

from .bugs import BUGS
from .climbs import CLIMBS
from .neighbour import NEIGHBOUR
from .peak import PEAK

__all__ = ["BUGS", "EXERCISES"]

EXERCISES = (PEAK, CLIMBS, NEIGHBOUR)
