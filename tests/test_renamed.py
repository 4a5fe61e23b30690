"""Whoever passes an old keyword is told the new one, and the new one is there."""

from dataclasses import replace

import pytest

from rlhf_minimal import ALGORITHMS, renamed
from rlhf_minimal.tasks import get_task
from rlhf_minimal.train import Recipe


@pytest.mark.parametrize(("old", "new"), renamed._KEYWORDS["Recipe"].items())
def test_an_old_keyword_is_answered_with_one_that_exists(old, new):
    row, task = ALGORITHMS["grpo"], get_task("addition")
    value = getattr(Recipe(row, task), new)
    for call in (lambda **what: Recipe(row, task, **what), lambda **what: replace(Recipe(row, task), **what)):
        assert getattr(call(**{new: value}), new) is value
        with pytest.raises(TypeError, match=f"Recipe: the keyword {old} is now {new}$"):
            call(**{old: value})
