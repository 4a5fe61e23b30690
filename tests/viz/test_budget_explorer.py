"""What the budget explorer shows is tabulated from the record, and its words say what the table holds.

The module runs under Node here. Where Node is missing the test is skipped and says so; tests/browser runs the same
comparison inside Chromium.
"""

import json
from pathlib import Path

import pytest
import torch
import traitlets

from rlhf_book import sampling
from rlhf_book.figures import budget
from rlhf_book.figures.widgets import BudgetExplorer, in_a_notebook
from tests.viz.node import run_in_node

MODULE = Path(__file__).resolve().parents[2] / "notebooks" / "rlhf_book" / "figures" / "budget_explorer.mjs"
TABLE = budget.budget_table()
CURVES = TABLE["curves"]
CASES = [[name, tokens] for name in TABLE["sets"] for tokens in (4.0, 20.0, 64.0, 1024.0)]


def compare(found):
    """What the module says a budget buys, against a loop over the table."""
    for (name, tokens), rows in zip(CASES, found, strict=True):
        assert [row[0] for row in rows] == list(budget.METHODS)
        for method, *points in rows:
            for model, point in zip(("start", "trained"), points, strict=True):
                paid = [p for p in CURVES[model].get(method, {}).get(name, []) if p[1] <= tokens]
                assert point == (max(paid, key=lambda p: p[1]) if paid else None)


def test_a_budget_buys_what_the_table_says():
    script = f"const curves = {json.dumps(CURVES)};\n"
    compare(
        run_in_node(
            MODULE, f"{script}console.log(JSON.stringify({json.dumps(CASES)}.map((c) => maths.bought(curves, ...c))))"
        )
    )


def test_the_table_is_the_records():
    start = sampling.completions_of(sampling.runs_of("start")[0])
    right, cost = start.right[:100], start.tokens[:100].double().mean().item()
    first, *_, last = CURVES["start"]["pass"]["all"]
    assert first[:3] == [1, pytest.approx(cost, abs=0.06), pytest.approx(right.double().mean().item(), abs=6e-4)]
    assert last[0] == 128
    assert last[2] == pytest.approx(right.any(1).double().mean().item(), abs=6e-4)
    trained = [sampling.completions_of(run).right[:100].double().mean() for run in sampling.runs_of("trained")]
    assert CURVES["trained"]["majority"]["all"][0][2] == pytest.approx(torch.stack(trained).mean().item(), abs=6e-3)
    forced = sampling.runs_of("forced")[0]["greedy"]
    shares = [sum(sampling.numbers(one["right"])) / 100 for one in forced]
    assert [point[2] for point in CURVES["start"]["held"]["all"]] == pytest.approx(shares)
    assert all(low <= share <= high for _, _, share, low, high in CURVES["start"]["best"]["all"])
    assert set(CURVES["start"]["held"]) == {"all"}


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (["all", 16], "At most 64 tokens a problem, all problems."),
        (["6 to 9", 32], "At most 1024 tokens a problem, problems with 6 to 9 moves."),
        (["10 to 14", 0], "The start cannot finish one completion. The trained model cannot finish one completion."),
        (["all", 10], "The start is best with \u201canswer held back, greedy\u201d: 98 %"),
    ],
)
def test_it_says_what_happened(case, words):
    given = f"{json.dumps(CURVES)}, {json.dumps(TABLE['methods'])}, ...{json.dumps(case)}"
    assert words in run_in_node(MODULE, f"console.log(JSON.stringify(maths.words({given})))")


def test_the_widget_carries_its_source_its_state_and_its_words():
    widget = BudgetExplorer("start", set="2 to 5", place=9)
    state = widget.get_state()
    assert [state[name] for name in ("shown", "set", "place")] == ["start", "2 to 5", 9]
    assert state["curves"] == CURVES
    assert state["_esm"] == in_a_notebook(MODULE)
    assert state["alt"] == BudgetExplorer.words
    assert BudgetExplorer.words in repr(widget)
    assert "http" not in MODULE.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")


def test_the_menus_and_the_widget_offer_the_same():
    text = MODULE.read_text(encoding="utf-8")
    assert f"const METHODS = {json.dumps(list(budget.METHODS))};" in text
    assert tuple(BudgetExplorer.set.values) == tuple(budget.SETS)
    assert f"const MODELS = {json.dumps(['both', 'start', 'trained'])};" in text


@pytest.mark.parametrize("arguments", [{"shown": "none"}, {"set": "15 to 20"}, {"place": 33}, {"place": -1}])
def test_the_widget_refuses_what_it_cannot_show(arguments):
    with pytest.raises(traitlets.TraitError):
        BudgetExplorer(**arguments)
