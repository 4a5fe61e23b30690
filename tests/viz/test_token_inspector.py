"""The token inspector says what the library computed, and stays small; the widget is strict.

The module runs under Node here; tests/browser runs the same comparison inside Chromium.
"""

import json
from functools import partial
from pathlib import Path

import pytest
import traitlets

from rlhf_book.figures.inspector import KINDS, cells_of, inspector_table
from rlhf_book.figures.widgets import TOKEN_INSPECTOR_ALT, TokenInspector, in_a_notebook
from tests.results.scripts import load
from tests.results.test_token_inspector import at
from tests.viz.node import run_in_node

MODULE = Path(__file__).resolve().parents[2] / "notebooks" / "rlhf_book" / "figures" / "token_inspector.mjs"
TABLE = inspector_table()
_, RECORD = load("token_inspector")
ROWS = ("reinforce", "grpo", "gspo", "gmpo", "kimi_k2", "icepop", "deepseek_v32", "dppo", "vespo")


def cases():
    """[run, step, group, row, completion, token] as places in the table."""
    found = []
    for r, run in enumerate(TABLE["runs"]):
        for s, step in enumerate(run["steps"]):
            for g, group in enumerate(step["groups"]):
                for i, own in enumerate(group["tokens"][:3]):
                    found += [[r, s, g, row, i, t] for row in ROWS for t in range(0, len(own), 2)]
    return found


def expression():
    """What the figure has of each case: factors, their product, whether it is cut, why; also used in the browser."""
    return (
        f"((table) => {json.dumps(cases())}.map(([r, s, g, row, i, t]) => {{ const step = table.runs[r].steps[s], "
        "f = maths.factors(table.kinds, step, step.groups[g], row, i, t); "
        "return [f, maths.product(f), maths.cut(f), maths.reason(f), "
        f"maths.total(table.kinds, step, step.groups[g], row, i)]; }}))({json.dumps(TABLE)})"
    )


def compare(computed):
    """With the record itself, not with the table that the figure was given; used by tests/browser, too."""
    assert len(computed) == len(cases()) > 500
    reasons = set()
    for (r, s, g, row, i, t), (found, product, cut, reason, total) in zip(cases(), computed, strict=True):
        step = RECORD["runs"][r]["steps"][s]
        group, scale = step["groups"][g], step["scale"][row]
        known = {kind: at(group["values"][place], i, t) for kind, place in group["rows"][row].items()}
        for kind in KINDS:
            if known[kind] is None:
                assert found[kind] is None
            else:
                assert found[kind] == pytest.approx(known[kind], rel=1e-4, abs=1e-9), (row, kind)
        assert product == pytest.approx(known["weight"], rel=1e-3, abs=1e-3 * scale), (row, known)
        if scale == 0:  # the whole batch has no weight in this row
            assert found["relative"] == found["weight"] == total == 0
            continue
        assert found["relative"] == pytest.approx(known["weight"] / scale, rel=1e-3, abs=1e-5)
        assert cut == (known["advantage"] != 0 and known["gate"] * known["correct"] * known["trust"] == 0)
        if not cut and known["advantage"] != 0:
            wanted = "made likelier" if known["weight"] > 0 else "made less likely"
            assert reason == wanted
        weights = group["values"][group["rows"][row]["weight"]]
        assert total == pytest.approx(
            sum(at(weights, i, place) for place in range(len(group["tokens"][i]))) / scale, rel=1e-3, abs=1e-3
        )
        reasons.add(reason)
    assert {"made likelier", "made less likely", "the gate gives it no gradient"} <= reasons
    assert "the gate gives it no gradient; the KL penalty alone acts" in reasons


in_node = partial(run_in_node, MODULE)


def say(call):
    return in_node(f"console.log(JSON.stringify({call}))")


def test_its_numbers_are_those_of_the_record():
    compare(in_node(f"console.log(JSON.stringify({expression()}))"))


def test_how_it_writes_numbers():
    numbers = [0.00313, -0.93524, 0, 1, 1.0e-6, -12345, 0.000355, 2.4e-10]
    assert say(f"{numbers}.map((x) => maths.number(x))") == [
        "0.00313",
        "\u22120.935",
        "0",
        "1",
        "1e\u22126",
        "\u22121.23e4",
        "3.55e\u22124",
        "2.4e\u221210",
    ]
    assert say("[maths.number(null), maths.number(0.5, true), maths.relative(-1.234), maths.relative(0.001)]") == [
        "none",
        "+0.5",
        "\u22121.23",
        "0.00",
    ]


def test_why_a_token_has_its_weight():
    f = {"advantage": 1, "gate": 0.9, "correct": 1, "trust": 1, "share": 0.5, "pull": 0, "weight": 0.45}
    changes = [
        ({}, "made likelier"),
        ({"advantage": -1, "weight": -0.45}, "made less likely"),
        ({"advantage": 0, "gate": None, "weight": 0}, "its advantage is 0"),
        ({"gate": 0, "weight": 0}, "the gate gives it no gradient"),
        ({"gate": 0, "weight": 0.1, "pull": 0.1}, "the gate gives it no gradient; the KL penalty alone acts"),
        ({"correct": 0, "weight": 0}, "the correction leaves it out"),
        ({"trust": 0, "weight": 0}, "trust leaves it out"),
    ]
    for change, wanted in changes:
        assert say(f"maths.reason({json.dumps(f | change)})") == wanted
    assert (
        say(f"maths.formula({json.dumps(f)}, {{}})") == "weight +0.45 = share 0.5 \u00d7 advantage +1 \u00d7 gate 0.9"
    )
    other = f | {"correct": 0.5, "pull": -0.1, "weight": 0.125}
    assert say(f"maths.formula({json.dumps(other)}, {{correct: 'x', trust: 'y'}})") == (
        "weight +0.125 = share 0.5 \u00d7 advantage +1 \u00d7 gate 0.9 \u00d7 correction 0.5 \u00d7 trust 1 "
        "\u2212 KL pull 0.1"
    )


def test_how_tokens_are_shown_and_read_out():
    texts = json.dumps(["", " the", " ", "4\n"])
    assert say(f"{texts}.map(maths.visible)") == ["\u25a0", "\u00b7the", "\u00b7", "4\u21b5"]
    assert say(f"{texts}.map(maths.spoken)") == ["end", "the", "space", "4"]


def test_the_sentence_of_a_row():
    silent = {"grpo": 3, "rloo": 0, "dapo": 1, "gspo": 60, "pass_at_k": 0}
    step = {"silent": silent, "credited": dict.fromkeys(silent, 60) | {"pass_at_k": 0}}
    said = say(f"{list(silent)}.map((row) => maths.words({json.dumps(step)}, row))")
    assert said == [
        "grpo: 3 of the batch's 60 tokens with an advantage get no gradient from it.",
        "rloo: none of the batch's 60 tokens with an advantage get no gradient from it.",
        "dapo: 1 of the batch's 60 tokens with an advantage gets no gradient from it.",
        "gspo: all of the batch's 60 tokens with an advantage get no gradient from it.",
        "pass_at_k: no token of the batch has an advantage.",
    ]


def test_the_table_has_every_run_and_row_with_its_cells():
    assert [run["name"] for run in TABLE["runs"]] == ["clock", "smollm2"]
    assert [row["name"] for row in TABLE["rows"]] == RECORD["rows"]
    assert len(TABLE["rows"]) == 27
    assert cells_of("icepop")["correct"].startswith("masked_importance")
    assert "correct" not in cells_of("grpo")
    assert inspector_table({"runs": [], "rows": []}) == {"runs": [], "rows": [], "kinds": list(KINDS)}


def test_the_widget_carries_its_source_its_state_and_its_words():
    widget = TokenInspector("smollm2", first="icepop", second="")
    state = widget.get_state()
    assert (state["run"], state["step"], state["first"], state["second"]) == ("smollm2", 6, "icepop", "")
    assert state["_esm"] == in_a_notebook(MODULE)
    assert TOKEN_INSPECTOR_ALT in repr(widget)
    assert "http" not in MODULE.read_text(encoding="utf-8")


def test_the_widget_refuses_what_was_not_recorded():
    with pytest.raises(traitlets.TraitError, match="no row 'ppo' in this record"):
        TokenInspector(first="ppo")
    with pytest.raises(traitlets.TraitError, match=r"clock has no step 3; it has \[1, 20, 40\]"):
        TokenInspector(step=3)
    with pytest.raises(traitlets.TraitError, match="no run 'clok'; there are clock, smollm2"):
        TokenInspector("clok")


def test_it_is_small_enough_for_a_page():
    assert len(json.dumps(TABLE)) + MODULE.stat().st_size < 600_000
