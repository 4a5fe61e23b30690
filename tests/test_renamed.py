"""Whoever asks for an old name is told the new one, and the new one is there."""

import importlib
from dataclasses import replace

import pytest

from rlhf_minimal import ALGORITHMS, renamed
from rlhf_minimal.tasks import get_task
from rlhf_minimal.train import Recipe

LINES = [line.split() for line in renamed._NAMES.strip().split("\n")]
NAMES = [(place, old, new) for place, *words in LINES for old, new in zip(words[::2], words[1::2], strict=True)]


@pytest.mark.parametrize(("place", "old", "new"), NAMES)
def test_an_old_name_is_answered_with_one_that_exists(place, old, new):
    module = importlib.import_module(f"rlhf_minimal.{place}")
    assert hasattr(module, new)
    assert old not in vars(module)
    with pytest.raises(ImportError, match=rf"rlhf_minimal\.{place}\.{old} is now {new}$"):
        exec(f"from rlhf_minimal.{place} import {old}")
    with pytest.raises(ImportError, match=f"is now {new}$"):
        getattr(module, old)
    with pytest.raises(AttributeError, match="has no attribute 'nothing_of_the_kind'"):
        module.nothing_of_the_kind  # noqa: B018


@pytest.mark.parametrize(("old", "new"), renamed._MODULES.items())
@pytest.mark.parametrize("form", ["import {}", "from {} import anything", "from {0[0]} import {0[1]}"])
def test_an_old_module_is_answered_with_one_that_exists(old, new, form):
    importlib.import_module(new)
    package, _, name = old.rpartition(".")
    with pytest.raises(ImportError, match=f"the module {old} is now {new}$"):
        exec(f"from {package} import {name}" if "0[0]" in form else form.format(old))


def test_a_module_that_never_was_is_not_found_as_ever():
    with pytest.raises(ModuleNotFoundError, match="No module named 'rlhf_minimal.nothing'"):
        importlib.import_module("rlhf_minimal.nothing")


@pytest.mark.parametrize(("old", "new"), renamed._KEYWORDS["Recipe"].items())
def test_an_old_keyword_is_answered_with_one_that_exists(old, new):
    row, task = ALGORITHMS["grpo"], get_task("addition")
    value = getattr(Recipe(row, task), new)
    for call in (lambda **what: Recipe(row, task, **what), lambda **what: replace(Recipe(row, task), **what)):
        assert getattr(call(**{new: value}), new) is value
        with pytest.raises(TypeError, match=f"Recipe: the keyword {old} is now {new}$"):
            call(**{old: value})
