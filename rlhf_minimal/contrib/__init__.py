r"""More rows of the table and the cells that only they use: same contracts, same tests.

`contrib.ALGORITHMS` holds the rows, and `rlhf_minimal.ALGORITHMS` those and the rows that chapters derive.
`contrib.PAIRWISE` holds more rows of the second table. The core, which is the files beside this folder, `functional`
and `tasks`, imports nothing from here.
"""

from . import advantages, aggregation, corrections, filters, gates, pairs, ratios, shaping, trust
from .algorithms import ALGORITHMS
from .pairs import PAIRWISE

__all__ = [
    "ALGORITHMS",
    "PAIRWISE",
    "advantages",
    "aggregation",
    "corrections",
    "filters",
    "gates",
    "pairs",
    "ratios",
    "shaping",
    "trust",
]
