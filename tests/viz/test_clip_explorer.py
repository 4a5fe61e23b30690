"""What the clip explorer computes is the library's gate and its gradient; the widget says and saves what it should.

The module runs under Node here. Where Node is missing the test is skipped and says so; tests/browser runs the same
comparison inside Chromium.
"""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
import traitlets

from rlhf_book.figures.widgets import ClipExplorer, in_a_notebook
from rlhf_minimal import ALGORITHMS, gradient_weight
from rlhf_minimal.functional import gates
from tests.viz.node import run_in_node

MODULE = Path(__file__).resolve().parents[2] / "notebooks" / "rlhf_book" / "figures" / "clip_explorer.mjs"


def cases():
    """Ratio, advantage, low, high: at random, and never exactly on an edge of the band, where a slope has no value."""
    generator = torch.Generator().manual_seed(0)
    for r, A, low, high in torch.rand(400, 4, generator=generator, dtype=torch.float64).tolist():
        yield [0.01 + 2.4 * r, 3 * A - 1.5, round(low, 2), round(high, 2)]
    for r in (0.5, 1.0, 1.5):
        yield from ([r, A, 0.2, 0.2] for A in (-1.0, 0.0, 1.0))


def compare(computed):
    """Used by tests/browser, too."""
    assert len(computed) == len(list(cases())) > 400
    silent = 0
    for (objective, weight), (r, A, low, high) in zip(computed, cases(), strict=True):
        gate = partial(gates.clip, low=low, high=high)
        ratio, advantage = (torch.tensor([[x]], dtype=torch.float64) for x in (r, A))
        assert objective == pytest.approx(gate(ratio, advantage).item(), abs=1e-9)
        row = replace(ALGORITHMS["ppo"], kl=(), gate=gate)
        assert weight == pytest.approx(gradient_weight(row, r, A).item(), abs=1e-9)
        silent += weight == 0
    assert 50 < silent < 300


in_node = partial(run_in_node, MODULE)


def test_its_numbers_are_the_librarys():
    each = "((c) => [maths.objective(...c), maths.weight(...c)])"
    compare(in_node(f"console.log(JSON.stringify({json.dumps(list(cases()))}.map({each})))"))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([1.5, 1, 0.2, 0.2], "above 1.20. The clipped product is the smaller one, and it is flat: no gradient."),
        ([0.6, 1, 0.2, 0.2], "below 0.80: it has moved the wrong way. The unclipped product is the smaller one"),
        ([1.1, 1, 0.2, 0.2], "inside the clip range. Both products are the same, and nothing is clipped: weight 1.10."),
        ([1.5, -1, 0.2, 0.2], "pushes it back down: weight \u22121.50, and the further it went the larger."),
        ([0.6, -1, 0.2, 0.2], "no gradient. It has lost enough from these samples."),
        (
            [0.9, -1, 0.2, 0.2],
            "inside the clip range. Both products are the same, and nothing is clipped: weight \u22120.90.",
        ),
        ([1, 0.5, 0, 0], "This is the first step after sampling: whatever the bounds, the weight is the advantage."),
        ([1.5, 0, 0.2, 0.2], "no gradient at any ratio"),
        ([1.28, 1, 0.2, 0.28], "inside the clip range"),
        ([0.1, -1, 0.9, 0.2], "inside the clip range"),
    ],
)
def test_it_says_which_cell_and_why(given, words):
    assert words in in_node(f"console.log(JSON.stringify(maths.words(...{json.dumps(given)})))")


@pytest.mark.parametrize(("low", "high"), [(0.2, 0.2), (0.2, 0.28), (0.9, 1.0), (0.0, 0.0)])
def test_a_button_sends_the_token_into_its_case_and_says_what_the_library_does_there(low, high):
    visited = in_node(
        f"const bounds = {json.dumps([low, high])};\n"
        "console.log(JSON.stringify(maths.places.flatMap((where) => [1, -1].map((sign) => {\n"
        "  const ratio = maths.visit(where, ...bounds);\n"
        "  return [where, sign, ratio, maths.where(ratio, ...bounds), maths.cases[sign][where][0]];\n"
        "}))))"
    )
    assert len(visited) == 6
    row = replace(ALGORITHMS["ppo"], kl=(), gate=partial(gates.clip, low=low, high=high))
    for where, sign, ratio, found, weight in visited:
        assert (found, weight) == (where, "rA" if gradient_weight(row, float(ratio), float(sign)).item() else "0")
        assert where == "inside" or abs(gradient_weight(row, float(ratio), float(sign)).item()) in (
            0,
            pytest.approx(ratio),
        )


def test_the_widget_carries_its_source_its_state_and_its_words():
    widget = ClipExplorer(ratio=0.6, advantage=-1, low=0.1, high=0.28)
    state = widget.get_state()
    assert [state[name] for name in ("ratio", "advantage", "low", "high")] == [0.6, -1.0, 0.1, 0.28]
    assert state["_esm"] == in_a_notebook(MODULE)
    assert state["alt"] == ClipExplorer.words
    assert ClipExplorer.words in repr(widget)
    assert "http" not in MODULE.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize(
    "arguments", [{"ratio": 0.0}, {"ratio": 3.0}, {"advantage": 2.0}, {"low": -0.1}, {"high": 1.5}]
)
def test_the_widget_refuses_what_it_cannot_show(arguments):
    with pytest.raises(traitlets.TraitError):
        ClipExplorer(**arguments)
