"""What the divergence explorer shows is tabulated in Python, and held here to autograd and to sums written out.

The module runs under Node here. Where Node is missing the test is skipped and says so; tests/browser runs the same
comparison inside Chromium.
"""

import json
import math
from pathlib import Path

import pytest
import torch
import traitlets

from rlhf_book.figures import divergences
from rlhf_book.figures.widgets import DivergenceExplorer, in_a_notebook
from tests.viz.node import run_in_node

MODULE = Path(__file__).resolve().parents[2] / "notebooks" / "rlhf_book" / "figures" / "divergence_explorer.mjs"
TABLE = divergences.tabulate()["table"]
CASES = [[name, centre] for name in divergences.DIVERGENCES for centre in (0, 10, 22, 40, 55)]


def by_hand(name, p, u):
    """Each divergence as a sum written out."""
    mixed = {"jsd 0.1": 0.1, "jsd 0.5": 0.5, "jsd 0.9": 0.9}
    if name == "forward":
        return sum(b * math.log(b / a) for a, b in zip(p, u, strict=True))
    if name == "reverse":
        return sum(a * math.log(a / b) for a, b in zip(p, u, strict=True))
    if name in mixed:
        beta, total = mixed[name], 0.0
        for a, b in zip(p, u, strict=True):
            m = beta * b + (1 - beta) * a
            total += beta * b * math.log(b / m) + (1 - beta) * a * math.log(a / m)
        return total
    top = sorted(range(12), key=lambda i: -u[i])[:3]
    found = sum(p[i] * math.log(p[i] / u[i]) for i in top)
    if name == "top 3, cut":
        return found
    a, b = 1 - sum(p[i] for i in top), 1 - sum(u[i] for i in top)
    return found + a * math.log(a / b)


def test_its_losses_are_the_sums():
    u = divergences.two_modes().tolist()
    for name, centre in CASES:
        p = divergences.bell(TABLE["centres"][centre]).tolist()
        assert TABLE["divergences"][name]["loss"][centre] == pytest.approx(by_hand(name, p, u), abs=1e-4), name


def test_its_pushes_are_differences_of_the_sums():
    u = divergences.two_modes().tolist()
    for name, centre in CASES:
        logits = divergences.bell(TABLE["centres"][centre]).log()
        for i in (0, 2, 5, 8):
            ends = []
            for step in (1e-5, -1e-5):
                moved = logits.clone()
                moved[i] += step
                ends.append(by_hand(name, moved.softmax(-1).tolist(), u))
            want = (ends[0] - ends[1]) / 2e-5
            assert TABLE["divergences"][name]["gradient"][centre][i] == pytest.approx(want, abs=1e-4), (name, centre)


def test_the_best_centre_is_that_of_the_fit():
    for name, of in TABLE["divergences"].items():
        assert TABLE["centres"][of["best"]] == pytest.approx(divergences.fit(name), abs=0.11)
    assert divergences.fit("forward") == pytest.approx(
        (divergences.two_modes() * torch.arange(12)).sum().item(), abs=0.05
    )


def compare(shown):
    """Used by tests/browser, too."""
    for (name, centre), got in zip(CASES, shown, strict=True):
        of = TABLE["divergences"][name]
        assert got["loss"] == of["loss"][centre]
        assert got["push"] == [-x for x in of["gradient"][centre]]
        assert got["student"] == TABLE["student"][centre]


def test_the_module_reads_its_table():
    program = f"const table = {json.dumps(TABLE)};\n"
    program += f"console.log(JSON.stringify({json.dumps(CASES)}.map((c) => maths.at(table, ...c))));"
    compare(run_in_node(MODULE, program))


def test_the_widget_is_strict():
    widget = DivergenceExplorer("reverse", 8.0)
    assert (widget.divergence, widget.centre) == ("reverse", 40)
    assert set(DivergenceExplorer.divergence.values) == set(divergences.DIVERGENCES)
    for wrong in ({"divergence": "sideways"}, {"centre": 12.0}, {"centre": -1.0}):
        with pytest.raises(traitlets.TraitError):
            DivergenceExplorer(**wrong)
    assert DivergenceExplorer.words in repr(widget)
    assert "const maths" in in_a_notebook(MODULE)
