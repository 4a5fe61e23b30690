"""What the group explorer computes is what the library computes; the widget says and saves what it should.

The module runs under Node here. Where Node is missing the test is skipped and says so; tests/browser runs the same
comparison inside Chromium.
"""

import json
from functools import partial
from pathlib import Path

import pytest
import torch
import traitlets

from rlhf_book.figures.widgets import GroupExplorer, in_a_notebook
from rlhf_minimal.functional import advantages
from tests.viz.node import run_in_node

MODULE = Path(__file__).resolve().parents[2] / "notebooks" / "rlhf_book" / "figures" / "group_explorer.mjs"
PRESETS = ("one right", "half right", "continuous", "outlier", "nearly equal", "all equal")


def cases():
    """Presets at every size, and groups at random: [rewards, eps, ddof]."""
    generator = torch.Generator().manual_seed(0)
    for size in range(2, 17):
        rewards = (2 * torch.rand(size, generator=generator, dtype=torch.float64)).tolist()
        yield from ([rewards, eps, ddof] for eps in (1e-8, 1e-4, 0.1) for ddof in (0, 1))
        yield [[0.7] * size, 1e-8, 1]
        yield [[0.1 * 3] * size, 1e-8, 0]
        yield [[1.0] + [0.0] * (size - 1), 1e-4, 1]


def expected(rewards, eps, ddof):
    """The same by the library, in double precision."""
    token_rewards = torch.tensor(rewards, dtype=torch.float64)[:, None]
    call = {"mask": torch.ones_like(token_rewards), "group_size": len(rewards)}
    return {
        "zscore": advantages.group_normalized(token_rewards, **call, eps=eps, ddof=ddof).flatten().tolist(),
        "centred": advantages.group_centered(token_rewards, **call).flatten().tolist(),
        "leaveOneOut": advantages.leave_one_out(token_rewards, **call).flatten().tolist(),
    }


def compare(computed):
    """Used by tests/browser, too."""
    wanted = [expected(*case) for case in cases()]
    assert len(computed) == len(wanted) > 100
    for got, want, (rewards, *_) in zip(computed, wanted, cases(), strict=True):
        for name, numbers in want.items():
            assert got[name] == pytest.approx(numbers, rel=1e-9, abs=1e-12)
            if len(set(rewards)) == 1:
                assert got["dead"] is True
                assert set(got[name]) == {0}
        if not got["dead"]:
            assert got["mean"] == pytest.approx(sum(rewards) / len(rewards))


in_node = partial(run_in_node, MODULE)


def test_its_numbers_are_the_librarys():
    compare(in_node(f"console.log(JSON.stringify({json.dumps(list(cases()))}.map((c) => maths.advantages(...c))))"))


def test_presets_are_what_their_names_say():
    presets = in_node(
        f"console.log(JSON.stringify({json.dumps(PRESETS)}.map((name) => "
        "Array.from({ length: 15 }, (_, i) => maths.preset(name, i + 2)))))"
    )
    for name, by_size in zip(PRESETS, presets, strict=True):
        assert [len(rewards) for rewards in by_size] == list(range(2, 17))
        for rewards in by_size:
            assert all(0 <= reward <= 2 and round(reward / 0.05, 6).is_integer() for reward in rewards)
            different = len(set(rewards))
            if name == "one right":
                assert sorted(rewards) == [0] * (len(rewards) - 1) + [1]
            if name == "half right":
                assert sum(rewards) == len(rewards) // 2
            if name == "all equal":
                assert different == 1
            if name in ("outlier", "nearly equal"):
                assert rewards.count(max(rewards)) == 1
                assert different > 1


@pytest.mark.parametrize(
    ("rewards", "words"),
    [
        ([0.7, 0.7, 0.7], "the group teaches nothing"),
        ([1, 0, 0, 0], "1 of 4 right: a right completion gets 1.50, a wrong one \u22120.50"),
        ([1, 0.3], "says who won and not by how much"),
        ([0.75, 0.7, 0.7, 0.7], "differ by little"),
        ([2, 0.4, 0.45, 0.5, 0.4, 0.45, 0.5, 0.4], "Completion 1 stands 2.47 standard deviations from the mean"),
        ([0.2, 0.4, 0.6, 1.4], "leaving one out by 1.33"),
    ],
)
def test_it_says_what_happened(rewards, words):
    assert words in in_node(f"console.log(JSON.stringify(maths.words({json.dumps(rewards)}, 1e-4, 1)))")


def test_the_widget_carries_its_source_its_state_and_its_words():
    widget = GroupExplorer([1.0, 0.0, 0.5], eps=0.01, ddof=0)
    state = widget.get_state()
    assert (state["rewards"], state["eps"], state["ddof"]) == ([1.0, 0.0, 0.5], 0.01, 0)
    assert state["_esm"] == in_a_notebook(MODULE)
    assert state["alt"] == GroupExplorer.words
    assert GroupExplorer.words in repr(widget)
    assert "http" not in MODULE.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize(
    "arguments", [{"rewards": [1.0]}, {"rewards": [0.0] * 17}, {"rewards": [3.0, 0.0]}, {"ddof": 2}]
)
def test_the_widget_refuses_what_it_cannot_show(arguments):
    with pytest.raises(traitlets.TraitError):
        GroupExplorer(**arguments)
