"""Hypothesis draws the same examples in every run: what passed once passes again, and no deadline depends on load.

Signals are those of a terminal, also where a suite runs in the background.
"""

import logging
import os
import re
import signal
import sys
import threading
from functools import cache

import pytest
from hypothesis import settings

from tests.complete import INCOMPLETE

settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=8)
settings.load_profile("repeatable")


class _Refuses(logging.Handler):
    """What transformers only logs of a coming version, as an error where it is said."""

    def emit(self, record):
        said = record.getMessage()
        if record.levelno >= logging.WARNING and re.search(r"deprecat|will be removed|will change in", said, re.I):
            raise FutureWarning(said)


def pytest_configure(config):
    if os.environ.get("RLHF_DEPRECATIONS") == "error":  # the weekly job, with the newest versions
        for kind in ("FutureWarning", "DeprecationWarning", "PendingDeprecationWarning"):
            config.addinivalue_line("filterwarnings", f"error::{kind}")
        logging.getLogger("transformers").addHandler(_Refuses())


def pytest_collection_modifyitems(items):
    """A row of which something is missing is one red test, tests/test_rows.py, and none in all the others."""
    for item in items:
        parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
        lacking = [name for name in parameters if isinstance(name, str) and name in INCOMPLETE]
        if lacking and item.path.name != "test_rows.py":
            item.add_marker(pytest.mark.skip(reason=f"the row {lacking[0]} is not complete: see test_rows"))


@pytest.fixture(autouse=True, scope="session")
def _signals_of_a_terminal():
    """What `make test &`, nohup and cron have told to ignore, tests and the commands that they start heed again."""
    usual = {signal.SIGINT: signal.default_int_handler}
    usual |= dict.fromkeys((signal.SIGTERM, signal.SIGALRM), signal.SIG_DFL)
    usual |= {getattr(signal, name): signal.SIG_DFL for name in ("SIGQUIT", "SIGHUP") if hasattr(signal, name)}
    if threading.current_thread() is not threading.main_thread():
        usual = {}
    ignored = [number for number in usual if signal.getsignal(number) == signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, usual[number])
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.fixture(autouse=True)
def nobody_has_asked():
    """`hint` gives a reader who asks again the next one. No test is that reader of another, whichever runs first."""
    if "rlhf_book.exercises" in sys.modules:  # else nobody can have asked
        sys.modules["rlhf_book.exercises"]._shown.clear()


@pytest.fixture
def drawn():
    """For a test that runs a command and wants the picture of its run drawn: in all others it is blank."""


@pytest.fixture(autouse=True)
def _blank_pictures(request):
    if (report := sys.modules.get("rlhf_minimal.cli.report")) is not None:
        from tests.commands import Blank

        report.Figure = Blank.__base__ if "drawn" in request.fixturenames else Blank


@pytest.fixture
def chat_model(tmp_path):
    """The folder of a tiny model with a chat template."""
    from tests.chat_model import write_chat_model

    return write_chat_model(tmp_path / "model")


@cache
def _of_gguf():
    """The reader of packed files and their names of tensors, each asked once for all tests of a process.

    For a model transformers reads its file three times, and asks for all names once for each of its modules. And the
    reader takes half a million slices of a memory map: those of a plain array take a quarter of the time.
    """
    import gguf
    import numpy as np

    class Plain(gguf.GGUFReader):
        def _get(self, *words, **named):
            self.data = self.data.view(np.ndarray)
            return super()._get(*words, **named)

    return {"GGUFReader": cache(Plain), "get_tensor_name_map": cache(gguf.get_tensor_name_map)}


@pytest.fixture
def quick_gguf(monkeypatch):
    """For a test that begins with a packed model: how one is read is for `tests/models/test_real.py` to say."""
    gguf = pytest.importorskip("gguf")
    for name, quick in _of_gguf().items():
        monkeypatch.setattr(gguf, name, quick)
