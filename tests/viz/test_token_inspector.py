"""The token inspector says what the library computed, and stays small; the widget is strict.

The module runs under Node here; tests/browser runs the same comparison inside Chromium.
"""

import json
import math
import re
from functools import partial
from pathlib import Path

import pytest
import torch
import traitlets

from rlhf_book.figures.inspector import KINDS, cells_of, inspector_table, unit_of
from rlhf_book.figures.widgets import TokenInspector, in_a_notebook
from rlhf_minimal import ALGORITHMS
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


def unit(step, row):
    """The mean over the tokens that have a weight: all of them under a KL penalty in the loss, else those not cut."""
    pulled = any(term.place == "loss" for term in ALGORITHMS[row].kl)
    count = step["tokens"] if pulled else step["credited"][row] - step["silent"][row]
    return step["scale"][row] * step["tokens"] / count if count else 0.0


def compare(computed):
    """With the record itself, not with the table that the figure was given; used by tests/browser, too."""
    assert len(computed) == len(cases()) > 500
    reasons = set()
    for (r, s, g, row, i, t), (found, product, cut, reason, total) in zip(cases(), computed, strict=True):
        step = RECORD["runs"][r]["steps"][s]
        group, scale = step["groups"][g], unit(step, row)
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
            wanted = "pushed up" if known["weight"] > 0 else "pushed down"
            assert reason == wanted
        weights = group["values"][group["rows"][row]["weight"]]
        assert total == pytest.approx(
            sum(at(weights, i, place) for place in range(len(group["tokens"][i]))) / scale, rel=1e-3, abs=1e-3
        )
        reasons.add(reason)
    assert {"pushed up", "pushed down", "the gate gives it no gradient"} <= reasons
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
        ({}, "pushed up"),
        ({"advantage": -1, "weight": -0.45}, "pushed down"),
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
    empty = {"runs": [], "rows": [], "kinds": list(KINDS), "examples": []}
    assert inspector_table({"runs": [], "rows": []}) == empty


def test_a_mean_size_is_that_of_the_weights_that_are_not_zero():
    """Where a row gives a weight to tokens of the groups alone, the counts of the batch are those of its tokens."""
    for run in RECORD["runs"]:
        for step in run["steps"]:
            for row in RECORD["rows"]:
                shown = [
                    at(group["values"][group["rows"][row]["weight"]], i, t)
                    for group in step["groups"]
                    for i, own in enumerate(group["tokens"])
                    for t in range(len(own))
                ]
                if unit(step, row) == 0:
                    assert not any(shown)
                if any(term.place == "loss" for term in ALGORITHMS[row].kl):
                    assert all(shown), row
                # No more tokens have a weight than are counted, and none of them is smaller than the mean over all.
                weighty = [x for x in shown if x]
                assert len(weighty) <= max(step["credited"][row] - step["silent"][row], step["tokens"] * bool(weighty))
                assert unit_of(step, row) == pytest.approx(unit(step, row))
                assert unit_of(step, row) >= step["scale"][row] * (1 - 1e-9)


def test_a_share_is_written_as_the_fraction_that_it_is():
    """For every row that divides by counts, at every completion."""
    asked = [
        [r, s, g, row["name"], i]
        for r, run in enumerate(TABLE["runs"])
        for s, step in enumerate(run["steps"])
        for g, group in enumerate(step["groups"])
        for row in TABLE["rows"]
        for i in range(len(group["tokens"]))
    ]
    found = say(
        f"((table) => {json.dumps(asked)}.map(([r, s, g, name, i]) => {{ const step = table.runs[r].steps[s], "
        "group = step.groups[g], row = table.rows.find((one) => one.name === name); "
        "const f = maths.factors(table.kinds, step, group, name, i, 0); "
        f"return [maths.share(f, row, step, group.tokens[i].length), f.share]; }}))({json.dumps(TABLE)})"
    )
    fractions = set()
    for (_, _, _, name, _), (said, share) in zip(asked, found, strict=True):
        if not said.startswith("1/"):
            assert name == "scalerl", name  # divides by the tokens of a prompt
            continue
        parts = [int(part) for part in re.findall(r"\d+", said)[1:]]
        assert 1 / math.prod(parts) == pytest.approx(share, rel=1e-4)
        fractions.add(said)
    assert {"1/64", "1/412", "1/(64 \u00d7 44)", "1/(64 \u00d7 5)", "1/(24 \u00d7 8)"} <= fractions


def test_rewards_after_shaping_are_those_from_which_the_advantages_are():
    for run in TABLE["runs"]:
        for step in run["steps"]:
            for group in step["groups"]:
                assert set(group["shaped"]) == {"dapo"}
                rewards = torch.tensor(group["shaped"]["dapo"], dtype=torch.float64)
                wanted = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
                values = group["values"][group["rows"]["dapo"][list(KINDS).index("advantage")]]
                assert [at(values, i, 0) for i in range(len(rewards))] == pytest.approx(wanted.tolist(), abs=1e-4)


def test_an_example_is_a_choice_that_there_is_and_shows_what_it_says():
    shown = {one["title"]: one["set"] for one in TABLE["examples"]}
    (run,) = [run for run in TABLE["runs"] if run["name"] == "clock"]
    names = {row["name"] for row in TABLE["rows"]}
    for one in shown.values():
        assert {one["first"], one["second"]} < names
        (step,) = [step for step in run["steps"] if step["step"] == one["step"]]
        assert one["token"] < len(step["groups"][one["prompt"]]["tokens"][one["completion"]])
    kinds = list(KINDS)

    def factor(one, row, kind):
        step = next(step for step in run["steps"] if step["step"] == one["step"])
        group = step["groups"][one["prompt"]]
        return at(group["values"][group["rows"][row][kinds.index(kind)]], one["completion"], one["token"])

    cut, pulled = shown["what the clip cuts"], shown["a pull without a push"]
    assert factor(cut, "grpo", "gate") == 0 < abs(factor(cut, "cispo", "gate"))
    assert factor(pulled, "grpo", "gate") == 0
    assert factor(pulled, "grpo", "advantage") * factor(pulled, "grpo", "weight") < 0


def test_the_widget_carries_its_source_its_state_and_its_words():
    widget = TokenInspector("smollm2", first="icepop", second="")
    state = widget.get_state()
    assert (state["run"], state["step"], state["first"], state["second"]) == ("smollm2", 6, "icepop", "")
    assert state["_esm"] == in_a_notebook(MODULE)
    assert TokenInspector.words in repr(widget)
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
