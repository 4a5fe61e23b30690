"""The figure of the benchmark subtracts, averages and says what the statistics say; the widget is strict.

The module runs under Node here; tests/browser runs the same comparison inside Chromium.
"""

import json
import math
from functools import partial
from itertools import permutations
from pathlib import Path

import pytest
import traitlets

from rlhf_book.benchmark import explorer_table, read_groups
from rlhf_book.comparison import paired
from rlhf_book.figures.widgets import RowBenchmark, in_a_notebook
from tests.results.made_up import made_up_record
from tests.viz.node import run_in_node

MODULE = Path(__file__).resolve().parents[2] / "notebooks" / "rlhf_book" / "figures" / "row_benchmark.mjs"
RECORD = made_up_record(("addition-1", "reviews-4"))
TABLE = explorer_table(RECORD)
GROUPS = read_groups(RECORD)
NAMES = ("reinforce", "gspo", "sapo", "dapo", "coin")


def cases():
    """[place of the group, first, second]."""
    few = ("ppo", "dr_grpo", "coin")
    return [[0, *pair] for pair in permutations(NAMES, 2)] + [[1, *pair] for pair in permutations(few, 2)]


def expression():
    """What the figure computes and says for each case; also used in the browser."""
    return (
        f"((table) => {json.dumps(cases())}.map(([at, one, other]) => [maths.compare(table.groups[at], table.t, one, "
        f"other), maths.words(table.groups[at], table.t, one, other)]))({json.dumps(TABLE)})"
    )


def compare(computed):
    """Used by tests/browser, too."""
    assert len(computed) == len(cases()) == 26
    said = set()
    for (at, first, second), (got, words) in zip(cases(), computed, strict=True):
        group = list(GROUPS.values())[at if at == 0 else -1]
        one, other = (group.settings["runs"].get(name, name) for name in (first, second))
        curves = [[run["curve"] for run in group.runs[row]] for row in (one, other)]
        for i, point in enumerate(got["points"]):
            wanted = paired(*([curve[i] for curve in side] for side in curves))
            assert (point["mean"], point["low"], point["high"]) == pytest.approx(
                (wanted.mean, wanted.low, wanted.high), abs=1e-9
            )
            assert [seed[i] for seed in got["seeds"]] == pytest.approx(wanted.values, abs=1e-12)
        if one == other:
            assert "are the same runs here" in words
            continue
        found = group.pairs("sampled") | group.beside_the_control("sampled")
        gap = found.get((one, other)) or found[other, one]
        assert ("not separated" in words) != gap.separated
        assert words.endswith("separated.")
        assert ("all 78 pairs" in words) == (at == 0 and "coin" not in (first, second))
        assert ("comparisons with the coin" in words) == ("coin" in (first, second))
        assert ("in score" in words) == (at == 1)
        said.add(gap.separated)
    assert said == {True, False}


in_node = partial(run_in_node, MODULE)


def test_its_numbers_are_those_of_the_statistics():
    compare(in_node(f"console.log(JSON.stringify({expression()}))"))


def test_it_says_the_mean_and_its_interval():
    group = GROUPS["addition-1"]
    gap = paired(*(group.results("sampled")[row] for row in ("reinforce", "dapo")))
    table = f"const t = {json.dumps(TABLE)}; "
    words = in_node(table + "console.log(JSON.stringify(maths.words(t.groups[0], t.t, 'reinforce', 'dapo')))")
    assert (
        f"reinforce minus dapo is +{gap.mean:.3f} in accuracy, [+{gap.low:.3f}, +{gap.high:.3f}] over 5 seeds" in words
    )
    same = in_node(table + "console.log(JSON.stringify(maths.words(t.groups[0], t.t, 'ppo', 'ppo')))")
    assert same == "Choose two different rows."


def test_a_tick_is_a_round_number_and_says_itself():
    """Read as a number each label is its tick; the outer ticks hold what is drawn, and not by more than needed."""
    sizes = [0.05, 0.0588, 0.1175, 0.066, 0.727, 0.5, 1.0, 2.3, 14.7, 17.0, 20.0, 0.2]
    found = in_node(f"console.log(JSON.stringify({sizes}.map((most) => maths.ticks(most))))")
    for most, ticks in zip(sizes, found, strict=True):
        at = [tick["at"] for tick in ticks]
        assert [float(tick["text"].replace("\u2212", "-")) for tick in ticks] == pytest.approx(at, abs=1e-12)
        assert at == pytest.approx([n * at[3] for n in (-2, -1, 0, 1, 2)], abs=1e-12)
        assert at[3] / 10 ** math.floor(math.log10(at[3]) + 1e-9) == pytest.approx(
            round(at[3] / 10 ** math.floor(math.log10(at[3]) + 1e-9))
        )
        assert most * (1 - 1e-9) <= at[4] <= 2.5 * most


def test_it_says_what_a_shared_run_is_and_what_is_doubtful():
    table = json.loads(json.dumps(TABLE))
    table["groups"][0]["doubtful"] = [["reinforce", "dapo"]]
    call = f"const t = {json.dumps(table)}; console.log(JSON.stringify(maths.words(t.groups[0], t.t, '%s', '%s')))"
    assert in_node(call % ("reinforce", "sapo")).startswith(
        "At the end reinforce minus sapo (here GRPO without its KL) is "
    )
    assert "Doubtful, since their spread is smaller than the evaluation's. After" in in_node(
        call % ("dapo", "reinforce")
    )
    assert "Doubtful" not in in_node(call % ("reinforce", "ppo"))


def test_the_widget_carries_its_source_its_state_and_its_words():
    widget = RowBenchmark("reviews-4", "ppo", "coin", record=RECORD)
    state = widget.get_state()
    assert (state["group"], state["first"], state["second"]) == ("reviews-4", "ppo", "coin")
    assert [group["name"] for group in state["groups"]] == ["addition-1", "reviews-4"]
    assert state["_esm"] == in_a_notebook(MODULE)
    assert RowBenchmark.words in repr(widget)
    assert "http" not in MODULE.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")


def test_the_widget_refuses_a_row_that_was_not_run():
    with pytest.raises(traitlets.TraitError, match="no row 'grop'"):
        RowBenchmark("addition-1", "grop", "coin", record=RECORD)


def test_it_is_not_too_large_for_a_page():
    whole = explorer_table(made_up_record())
    assert len(whole["groups"]) == 5
    assert len(json.dumps(whole)) < 150_000
