"""Reinforcement learning for language models: every algorithm a row of one table.

Open `algorithms.py` first. Then `objective.py`, where the columns of the table meet.
"""

from . import contrib
from .algorithms import ALGORITHMS
from .anatomy import diff, gradient_weight, table, token_weights
from .objective import KL, Algorithm, Batch, NotFinite, Totals, policy_loss, prepare, value_loss
from .pairs import PAIRWISE, Pairs, PairwiseAlgorithm, pairwise_gap, pairwise_loss

ALGORITHMS |= contrib.ALGORITHMS  # one registry for both

__version__ = "0.2.0"
__all__ = [
    "ALGORITHMS",
    "KL",
    "PAIRWISE",
    "Algorithm",
    "Batch",
    "NotFinite",
    "Pairs",
    "PairwiseAlgorithm",
    "Totals",
    "contrib",
    "diff",
    "gradient_weight",
    "pairwise_gap",
    "pairwise_loss",
    "policy_loss",
    "prepare",
    "table",
    "token_weights",
    "value_loss",
]
