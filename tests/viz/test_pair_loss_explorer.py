"""What the pair-loss explorer shows is what the library's losses give by autograd; it says what happened; the widget is
strict.

The module runs under Node here; tests/browser runs the same comparison inside Chromium.
"""

import json
from functools import partial
from pathlib import Path

import pytest
import torch
import traitlets

from rlhf_book.figures.widgets import PairLossExplorer, in_a_notebook
from rlhf_minimal import PAIRWISE
from tests.viz.node import run_in_node

MODULE = Path(__file__).resolve().parents[2] / "notebooks" / "rlhf_book" / "figures" / "pair_loss_explorer.mjs"


def cases():
    """States at random and at the ends of the sliders."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(40):
        gap, beta, wins = torch.rand(3, generator=generator, dtype=torch.float64).tolist()
        yield {"gap": 16 * gap - 8, "beta": 0.05 + 0.95 * beta, "wins": 0.5 + 0.49 * wins}
    for gap in (-8.0, 0.0, 8.0):
        for wins in (0.5, 1.0):
            yield {"gap": gap, "beta": 0.05, "wins": wins}


def expected(gap, beta, wins):
    """The same from the rows of the second table: the mean over labels that agree and labels that do not."""
    rows = []
    for name, row in PAIRWISE.items():
        loss = row.loss if name == "bradley_terry" else partial(row.loss.func, beta=beta)

        def mean_and_pull(at, loss=loss, share=wins):
            x = torch.tensor([at], dtype=torch.float64, requires_grad=True)
            mean = (share * loss(x) + (1 - share) * loss(-x)).sum()
            return mean.item(), -torch.autograd.grad(mean, x)[0].item()

        mean, pull = mean_and_pull(gap)
        first = mean_and_pull(0.0, share=1.0)[1]
        rows.append({"name": name, "loss": mean, "pull": pull, "relative": pull / first})
    return rows


def compare(computed):
    """Used by tests/browser, too."""
    wanted = list(cases())
    assert len(computed) == len(wanted) > 40
    for rows, state in zip(computed, wanted, strict=True):
        for got, right in zip(rows, expected(**state), strict=True):
            for name, value in right.items():
                assert got[name] == (value if name == "name" else pytest.approx(value, rel=1e-9, abs=1e-12))
            if got["rest"] is None:
                assert state["wins"] == 1
            else:  # where the mean pull is nothing
                at_rest = {row["name"]: row for row in expected(got["rest"], state["beta"], state["wins"])}
                assert at_rest[got["name"]]["relative"] == pytest.approx(0, abs=1e-9)


in_node = partial(run_in_node, MODULE)


def test_its_numbers_are_the_librarys():
    compare(in_node(f"console.log(JSON.stringify({json.dumps(list(cases()))}.map((c) => maths.compute(c))))"))


@pytest.mark.parametrize(
    ("state", "parts"),
    [
        ({"gap": 0, "beta": 0.5, "wins": 1}, ["The gap is 0.0.", "DPO and SPIN: widens it; it never rests", "1.00"]),
        ({"gap": 3, "beta": 0.5, "wins": 1}, ["IPO narrows it; it rests at 1.00"]),
        (
            {"gap": -2, "beta": 0.5, "wins": 0.75},
            ["Bradley-Terry widens it; it rests at 1.10", "rests at 2.20", "0.50"],
        ),
        ({"gap": 0, "beta": 0.5, "wins": 0.5}, ["Bradley-Terry stands still; it rests at 0.00"]),
    ],
)
def test_it_says_who_widens_the_gap(state, parts):
    text = in_node(f"console.log(JSON.stringify(maths.words({json.dumps(state)})))")
    for part in parts:
        assert part in text


def test_examples_are_what_their_names_say():
    examples = in_node("console.log(JSON.stringify(maths.examples))")
    for state in examples.values():
        PairLossExplorer(**state)
    states = {name: {key: float(x) for key, x in state.items()} for name, state in examples.items()}
    found = {name: {row["name"]: row for row in expected(**state)} for name, state in states.items()}
    assert found["the first step of DPO"]["dpo"]["relative"] == 1
    assert found["ranked wrongly"]["dpo"]["relative"] > 1.5
    assert 0 < found["far apart"]["dpo"]["relative"] < 0.1
    assert found["far apart"]["ipo"]["pull"] < 0
    assert abs(found["one label in four is flipped"]["dpo"]["relative"]) < 0.01


def test_it_has_the_rows_of_the_table_and_the_limits_of_the_widget():
    assert in_node("console.log(JSON.stringify(maths.rows))") == list(PAIRWISE)
    limits = in_node("console.log(JSON.stringify(maths.ranges))")
    for end in ("min", "max"):
        PairLossExplorer(**{name: limits[name][end] for name in ("gap", "beta", "wins")})


def test_the_widget_carries_its_source_its_state_and_its_words():
    widget = PairLossExplorer(2, beta=0.1, wins=0.75)
    state = widget.get_state()
    assert (state["gap"], state["beta"], state["wins"]) == (2, 0.1, 0.75)
    assert state["_esm"] == in_a_notebook(MODULE)
    assert PairLossExplorer.words in repr(widget)
    assert "http" not in MODULE.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize("arguments", [{"gap": 9}, {"beta": 0.0}, {"wins": 0.3}, {"wins": 1.1}])
def test_the_widget_refuses_what_it_cannot_show(arguments):
    with pytest.raises(traitlets.TraitError):
        PairLossExplorer(**arguments)
