r"""More rows of the table and the cells that only they use: same contracts, same tests.

`contrib.ALGORITHMS` holds the rows, and `rlhf_minimal.ALGORITHMS` those and the rows that chapters derive. The core,
which is the files beside this folder, `functional` and `tasks`, imports nothing from here.
"""

from . import advantages, aggregation, corrections, filters, gates, ratios, shaping, trust
from .algorithms import ALGORITHMS

__all__ = [
    "ALGORITHMS",
    "advantages",
    "aggregation",
    "corrections",
    "filters",
    "gates",
    "ratios",
    "shaping",
    "trust",
]
