"""Pure functions on [B, T] tensors: no model, no state. One file a column of the table."""

from . import advantages, aggregation, corrections, filters, gates, kl, logprobs, masked, ratios, shaping

__all__ = [
    "advantages",
    "aggregation",
    "corrections",
    "filters",
    "gates",
    "kl",
    "logprobs",
    "masked",
    "ratios",
    "shaping",
]
