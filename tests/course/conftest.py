"""Walls for the tests of grading: those that this machine has, one by one."""

import os
import sys
from contextlib import contextmanager

import pytest
from filelock import FileLock

from rlhf_book.course import grading, isolation
from tests.course.submitted import LIMITS, ROOT, missing, readable


@pytest.fixture(autouse=True)
def _linux_only(request):
    if request.module.__name__.endswith(("test_grading", "test_walls")) and sys.platform != "linux":
        pytest.skip("walls around a process are Linux's")


@contextmanager
def _alone(tmp_path_factory):
    """One submission at a time, whichever process of the suite asks.

    The kernel counts the processes and threads of a user. As root all submissions run as the user nobody, and a limit
    is what that user has when one starts, and some more: another test that forks meanwhile uses these up.
    """
    folder = tmp_path_factory.getbasetemp()
    with FileLock((folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "walls.lock", is_singleton=True):
        yield


@pytest.fixture(autouse=True)
def _one_submission(request, tmp_path_factory):
    if {"grader", "way", "each_way", "walls", "behind"} & set(request.fixturenames):
        with _alone(tmp_path_factory):
            yield
    else:
        yield


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("library")
    isolation.library_copy(folder)
    return readable(folder)


@pytest.fixture(scope="session")
def way(library, tmp_path_factory):
    """The strongest, as the command takes it."""
    with _alone(tmp_path_factory):
        try:
            return grading.strongest(library, LIMITS, private=[ROOT])
        except RuntimeError:
            return grading.strongest(library, LIMITS, "limits")


@pytest.fixture(scope="session")
def _offered(library, tmp_path_factory):
    """Name -> the way, or why there is none."""
    found = {}
    with _alone(tmp_path_factory):
        for name in isolation.WAYS:
            try:
                found[name] = grading.strongest(library, LIMITS, name, [ROOT], bound="")
            except RuntimeError as problem:
                found[name] = str(problem)
    return found


def _one_of(offered, name):
    return missing(name, offered[name]) if isinstance(offered[name], str) else offered[name]


@pytest.fixture(params=list(isolation.WAYS))
def each_way(request, _offered):
    return _one_of(_offered, request.param)


@pytest.fixture(params=list(isolation.WALLS))
def walls(request, _offered):
    return _one_of(_offered, request.param)
