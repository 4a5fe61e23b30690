"""Hypothesis draws the same examples in every run: what passed once passes again, and no deadline depends on load."""

import pytest
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=15)
settings.load_profile("repeatable")


@pytest.fixture
def chat_model(tmp_path):
    """The folder of a tiny model with a chat template."""
    from tests.chat_model import write_chat_model

    return write_chat_model(tmp_path / "model")
