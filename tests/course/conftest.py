"""Walls for the tests of grading: those that this machine has, one by one."""

import sys

import pytest

from rlhf_book.course import grading, isolation
from tests.course.submitted import LIMITS, ROOT, missing, readable


@pytest.fixture(autouse=True)
def _linux_only(request):
    if request.module.__name__.endswith(("test_grading", "test_walls")) and sys.platform != "linux":
        pytest.skip("walls around a process are Linux's")


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("library")
    isolation.library_copy(folder)
    return readable(folder)


@pytest.fixture(scope="session")
def way(library):
    """The strongest, as the command takes it."""
    try:
        return grading.strongest(library, LIMITS, private=[ROOT])
    except RuntimeError:
        return grading.strongest(library, LIMITS, "limits")


@pytest.fixture(scope="session")
def _offered(library):
    """Name -> the way, or why there is none."""
    found = {}
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
