"""What the head-room explorer shows is where the gradient of the library's clip ends; it says so; the widget is strict.

The module runs under Node here; tests/browser runs the same comparison inside Chromium.
"""

import json
import math
from functools import partial
from pathlib import Path

import pytest
import torch
import traitlets

from rlhf_book.figures.widgets import HeadroomExplorer, in_a_notebook
from rlhf_minimal.functional import gates
from tests.viz.node import run_in_node

MODULE = Path(__file__).resolve().parents[2] / "notebooks" / "rlhf_book" / "figures" / "headroom_explorer.mjs"


def cases():
    """The arguments of `compute`: rare, middling and sure tokens under several ranges."""
    return [
        [p, low, high]
        for p in (0.0002, 0.01, 0.3, 0.75, 0.8, 0.9, 0.99)
        for low, high in ((0.2, 0.2), (0.2, 0.28), (0.0, 0.5), (0.5, 1.0), (0.9, 0.05))
    ]


def pushed(p_new, p, low, high, advantage):
    """Whether a token at that probability still has a gradient."""
    ratio = torch.tensor([[p_new / p]], dtype=torch.float64).requires_grad_()
    A = torch.tensor([[advantage]], dtype=torch.float64)
    return torch.autograd.grad(gates.clip(ratio, A, low=low, high=high).sum(), ratio)[0].item() != 0


def compare(computed):
    """Used by tests/browser, too."""
    assert len(computed) == len(cases()) == 35
    bound = 0
    for (p, low, high), got in zip(cases(), computed, strict=True):
        top, bottom = got["top"], got["bottom"]
        assert pushed(p + 0.999 * (top - p), p, low, high, 1.0)
        assert pushed(p - 0.999 * (p - bottom), p, low, high, -1.0) or low == 0
        assert not pushed(0.999 * bottom, p, low, high, -1.0)
        if got["binds"]:
            bound += 1
            assert top < 1
            assert not pushed(1.001 * top, p, low, high, 1.0)
        else:
            assert top == 1
            assert pushed(1.0 - 1e-9, p, low, high, 1.0)
        assert got["up"] == pytest.approx(top - p)
        assert got["down"] == pytest.approx(p - bottom)
        assert got["share"] == pytest.approx((top - p) / (1 - p))
        assert got["logUp"] == pytest.approx(math.log(1 + high))
        assert got["logDown"] == pytest.approx(-math.log(1 - low), abs=1e-12)
        assert (1 + high) ** got["doubles"] >= 2 - 1e-6 > (1 + high) ** (got["doubles"] - 1)
    assert 10 < bound < 30


in_node = partial(run_in_node, MODULE)


def test_its_numbers_are_where_the_gradient_ends():
    compare(in_node(f"console.log(JSON.stringify({json.dumps(cases())}.map((c) => maths.compute(...c))))"))


@pytest.mark.parametrize(
    ("case", "parts"),
    [
        ([0.01, 0.2, 0.28], ["until 0.0128: a gain of 0.00280", "until 0.00800", "more room up than down"]),
        ([0.01, 0.2, 0.2], ["until 0.0120", "more room down than up"]),
        ([0.01, 0.2, 0.25], ["equal in both directions"]),
        ([0.9, 0.2, 0.28], ["the upper bound of 1.280 cannot be reached", "a ratio of 1.111"]),
    ],
)
def test_it_says_what_the_bounds_leave(case, parts):
    text = in_node(f"console.log(JSON.stringify(maths.words(...{json.dumps(case)})))")
    for part in parts:
        assert part in text


def test_examples_and_sliders_fit_the_widget():
    examples = in_node("console.log(JSON.stringify(maths.examples))")
    for p, low, high in examples.values():
        HeadroomExplorer(p, low=low, high=high)
    ends = in_node("console.log(JSON.stringify([maths.odds.min, maths.odds.max].map(maths.fromOdds)))")
    for p in ends:
        HeadroomExplorer(p)
    back = in_node("console.log(JSON.stringify([0.001, 0.4, 0.99].map((p) => maths.fromOdds(maths.toOdds(p)))))")
    assert back == pytest.approx([0.001, 0.4, 0.99])
    for name in ("low", "high"):
        limits = in_node(f"console.log(JSON.stringify(maths.{name}))")
        HeadroomExplorer(0.5, **{name: float(limits["max"])})


def test_the_widget_carries_its_source_its_state_and_its_words():
    widget = HeadroomExplorer(0.3, low=0.1, high=0.4)
    state = widget.get_state()
    assert (state["p"], state["low"], state["high"]) == (0.3, 0.1, 0.4)
    assert state["_esm"] == in_a_notebook(MODULE)
    assert HeadroomExplorer.words in repr(widget)
    assert "http" not in MODULE.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize("arguments", [{"p": 1.0}, {"p": 0.0}, {"low": 1.0}, {"high": -0.1}])
def test_the_widget_refuses_what_it_cannot_show(arguments):
    with pytest.raises(traitlets.TraitError):
        HeadroomExplorer(**arguments)
