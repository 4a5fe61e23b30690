"""Notebooks as students hand them in, for the tests of grading."""

import json
import os
import sys
from pathlib import Path

import pytest

from rlhf_book.course import choice, grading
from rlhf_book.course.grading import Grader, submissions
from rlhf_book.course.isolation import Limits
from rlhf_book.exercises import EXERCISES

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "book" / "_pages"), str(ROOT / "book" / "_tools")]

from course_answers import ANSWERS, IMPORTS  # noqa: E402

SEED = 7
WEEKS = {"week-01": ["board-masked-mean", "scale-lora"], "week-02": ["lm-micro-weights"]}
LIMITS = Limits(seconds=120.0, cell_seconds=3.0, memory=3 * 2**30, processes=24)
FIRST, SECOND = (IMPORTS + ANSWERS[name, choice(name, SEED).name] for name in WEEKS["week-01"])
FULL = [EXERCISES[name].minutes for name in WEEKS["week-01"]]
BOTH = sum(FULL)


def notebook(*cells):
    made = [{"cell_type": "code", "metadata": {}, "source": cell, "outputs": []} for cell in cells]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def hand_in(folder, name, *cells):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(notebook(*cells))
    return next(found for found in submissions(folder) if found.path == path)


def points(rows):
    return [row.points for row in rows]


# A file that takes these two as its own, `grader = submitted.grader`, shares no grader with another file.


@pytest.fixture(scope="module", autouse=True)
def fewer_draws():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grading, "DRAWS", 40)
        yield


@pytest.fixture(scope="module")
def grader(library, way):
    return Grader(WEEKS, SEED, 99, way, LIMITS, library)


# Ways that have to be there, by name: in CI a missing one is a failure, elsewhere its tests are skipped.
DEMANDED = os.environ.get("RLHF_WALLS", "").split()


def missing(name, why):
    """Skip with a sentence; or fail, where this way is demanded."""
    words = f"{name} cannot be had on this machine: {why}"
    if name in DEMANDED:
        pytest.fail(words)
    pytest.skip(words)


def readable(folder):
    """Let other users enter it: pytest's folders are its user's alone."""
    for parent in (folder, *folder.parents):
        if parent != Path("/tmp") and str(parent).startswith("/tmp/") and parent.stat().st_uid == os.geteuid():
            parent.chmod(parent.stat().st_mode | 0o055)
    return folder
