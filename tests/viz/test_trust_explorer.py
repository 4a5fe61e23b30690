"""What the trust explorer shows is tabulated from the library, and its words say what the table holds.

The module runs under Node here. Where Node is missing the test is skipped and says so; tests/browser runs the same
comparison inside Chromium.
"""

import json
from pathlib import Path

import pytest
import torch
import traitlets

from rlhf_book.figures import trust
from rlhf_book.figures.widgets import TrustExplorer, in_a_notebook
from rlhf_minimal import ALGORITHMS, gradient_weight
from tests.viz.node import run_in_node

MODULE = Path(__file__).resolve().parents[2] / "notebooks" / "rlhf_book" / "figures" / "trust_explorer.mjs"
TABLE = trust.trust_table()["table"]
NOW, SAMPLED = TABLE["now"], TABLE["sampled"]


def weight(name, now, sampled, old, sign):
    return TABLE["curves"][TABLE["curve"][f"{old}/{sign}/{name}"]][sampled][now]


def by_hand(name, p, q, old, sign):
    """What each row does with a token, written out: p now, q when sampled."""
    w = p / q if old == "sampler" else 1.0
    rho = 1.0 if old == "sampler" else p / q
    spent = {"grpo": (0.8, 1.2), "dapo": (0.8, 1.28), "olmo3": (0.8, 1.272), "icepop": (0.8, 1.28)}
    spent["deepseek_v32"] = (0.8, 1.2)
    if name == "reinforce":
        return sign
    if name in spent:
        low, high = spent[name]
        gated = 0.0 if (sign > 0 and w > high) or (sign < 0 and w < low) else w * sign
        if name == "olmo3":
            return gated * min(rho, 2.0)
        if name == "icepop":
            return gated * (rho if 0.5 <= rho <= 2 else 0.0)
        if name == "deepseek_v32" and sign < 0 and torch.tensor(q / p).log() > 0.5:
            return 0.0
        return gated
    if name == "cispo":
        return min(w, 5.0) * sign
    if name == "topr":
        return 1.0 if sign > 0 else -min(w, 1.0)
    if name in ("kimi_k25", "sao"):
        low, high = (0.8, 1.28) if name == "kimi_k25" else (0.7, 6.0)
        return w * sign if low < w < high else 0.0
    if name == "dppo":
        moved = p - q if old == "sampler" else 0.0
        return w * sign if (moved <= 0.2 if sign > 0 else moved >= -0.2) else 0.0
    return None


def test_its_numbers_are_what_each_row_says():
    held, zeros = 0, 0
    for name in trust.ROWS:
        for old in trust.OLD:
            for sign in (1, -1):
                for j, x in enumerate(trust.SAMPLED.tolist()):
                    for i, y in enumerate(trust.NOW.tolist()):
                        p, q = (torch.tensor(z, dtype=torch.float64).sigmoid().item() for z in (y, x))
                        want = by_hand(name, p, q, old, sign)
                        if want is None:
                            continue
                        assert weight(name, i, j, old, sign) == pytest.approx(want, rel=1e-3), (name, old, sign, p, q)
                        held += 1
                        zeros += want == 0
    assert held == 11 * 2 * 2 * len(NOW) * len(SAMPLED)
    assert zeros > held / 10


def test_against_the_sampler_it_is_the_gate_of_the_row():
    for name in ("sapo", "grpo", "cispo"):
        for sign in (1, -1):
            for i in range(0, len(NOW), 7):
                ratio = (trust.NOW[i].sigmoid() / trust.SAMPLED[3].sigmoid()).item()
                want = gradient_weight(ALGORITHMS[name], ratio, float(sign)).item()
                assert weight(name, i, 3, "sampler", sign) == pytest.approx(want, rel=1e-3)


def test_a_token_that_has_not_moved_is_trained_alike():
    for j, x in enumerate(trust.SAMPLED.tolist()):
        i = trust.NOW.tolist().index(x)
        for old in trust.OLD:
            for sign in (1, -1):
                assert {weight(name, i, j, old, sign) for name in trust.ROWS} == {sign}


CASES = [(i, j, old, sign) for i in (0, 40, 69, 130) for j in range(8) for old in trust.OLD for sign in (1, -1)]


def compare(found):
    """Used by tests/browser, too."""
    for (i, j, old, sign), got in zip(CASES, found, strict=True):
        assert got == [weight(name, i, j, old, sign) for name in trust.ROWS]


def in_node(script):
    return run_in_node(MODULE, f"const table = {json.dumps(TABLE)};\n{script}")


def test_the_module_reads_the_table_as_it_is_meant():
    compare(in_node(f"console.log(JSON.stringify({json.dumps(CASES)}.map((c) => maths.weights(table, ...c))))"))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((0.119, 0.119, "sampler", 1), "All 12 rows train on it, all with weight 1.00."),
        ((0.119, 0.119, "own", -1), "All 12 rows train on it, all with weight \u22121.00."),
        ((0.25, 0.119, "own", 1), "11 of 12 rows train on it; left out by icepop."),
        ((0.25, 0.119, "own", 1), "The largest weight, 2.00, is that of olmo3."),
        ((0.05, 0.119, "own", -1), "left out by icepop, deepseek_v32"),
        ((0.05, 0.119, "sampler", -1), "left out by grpo, dapo, kimi_k25, sao, olmo3, icepop, deepseek_v32"),
        ((0.003, 0.0009, "sampler", 1), "left out by grpo, dapo, kimi_k25, olmo3, icepop, deepseek_v32."),
    ],
)
def test_it_says_who_trains(given, words):
    at = trust.nearest(*given[:2])
    call = json.dumps([at["now"], at["sampled"], given[2], given[3]])
    assert words in in_node(f"console.log(JSON.stringify(maths.words(table, ...{call})))")


def test_its_examples_are_what_their_names_say():
    examples = in_node("console.log(JSON.stringify(maths.examples))")
    for name, (sampled, now, sign) in examples.items():
        at = trust.nearest(now, sampled)
        p, q = trust.NOW[at["now"]].sigmoid(), trust.SAMPLED[at["sampled"]].sigmoid()
        assert sign == (-1 if name.startswith("bad") else 1)
        if name == "fresh":
            assert p == q
        elif "lost" in name:
            assert p < 0.5 * q
        elif name == "likely, up by a fifth":
            assert 1.15 < p / q < 1.28
        else:
            assert p > 2 * q


def test_the_widget_carries_its_source_its_state_and_its_words():
    widget = TrustExplorer(0.5, 0.27, old="own", sign=-1)
    state = widget.get_state()
    assert (state["now"], state["sampled"]) == (80, 4)
    assert (state["old"], state["sign"]) == ("own", -1)
    assert state["table"] == TABLE
    assert state["_esm"] == in_a_notebook(MODULE)
    assert state["alt"] == TrustExplorer.words
    assert TrustExplorer.words in repr(widget)
    assert "http" not in MODULE.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize("arguments", [{"old": "reference"}, {"sign": 0}])
def test_the_widget_refuses_what_it_cannot_show(arguments):
    with pytest.raises(traitlets.TraitError):
        TrustExplorer(**arguments)


@pytest.mark.parametrize("p", [0.0, 1.0, -0.1])
def test_a_probability_lies_between_0_and_1(p):
    with pytest.raises(ValueError, match="between 0 and 1"):
        TrustExplorer(now=p)
