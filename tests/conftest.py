"""Hypothesis draws the same examples in every run: what passed once passes again, and no deadline depends on load."""

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=15)
settings.load_profile("repeatable")
