"""The routing figure: its table against layers written out by loops, its words, and what its widget refuses."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch
import traitlets

from rlhf_book.figures import routing as figure
from rlhf_book.figures.widgets import RoutingExplorer, in_a_notebook
from tests.viz.node import run_in_node

MODULE = Path(__file__).resolve().parents[2] / "notebooks" / "rlhf_book" / "figures" / "routing_explorer.mjs"


def data():
    return figure.routing()["data"]


in_node = partial(run_in_node, MODULE)


def by_loops(stack, x):
    """One token through the stack, expert by expert."""
    for router, (up, gate, down) in zip(stack.router, stack.blocks, strict=True):
        h = x / (x**2).mean() ** 0.5
        logits = [float(w @ h) for w in router]
        best = sorted(range(len(logits)), key=lambda e: -logits[e])[: stack.picked]
        weights = torch.tensor([logits[e] for e in best]).softmax(0)
        for weight, e in zip(weights, best, strict=True):
            inner = gate[e] @ h
            x = x + weight * (down[e] @ (inner * inner.sigmoid() * (up[e] @ h)))
    return (stack.head @ (x / (x**2).mean() ** 0.5)).log_softmax(0)


@pytest.mark.parametrize(("experts", "picked"), [(8, 2), (1, 1), (6, 4)])
def test_a_stack_is_its_layers(experts, picked):
    stack = figure.Stack(3, experts, picked, 8, seed=0)
    x = torch.randn(4, figure.HIDDEN, generator=torch.Generator().manual_seed(1))
    logp, chosen = stack.read(x)
    torch.testing.assert_close(logp, torch.stack([by_loops(stack, row) for row in x]), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(stack.read(x, replay=chosen)[0], logp)
    torch.testing.assert_close(stack.read(x, torch.zeros(3, *x.shape))[0], logp)
    assert not figure.differ(chosen, stack.read(x)[1]).any()


def test_flips_are_counted_as_sets():
    before = [torch.tensor([[0, 1], [2, 3], [4, 5]])]
    assert figure.differ(before, [torch.tensor([[1, 0], [3, 9], [8, 9]])]).tolist() == [[False, True, True]]


def test_the_table_is_whole_and_says_what_the_chapter_says_of_it():
    keys = [f"{a}/{b}/{c}" for a in figure.LAYERS for b in figure.EXPERTS for c in figure.PICKED]
    assert list(data()["table"]) == keys
    assert all(len(lines) == len(figure.NOISES) for lines in data()["table"].values())
    for layers in (12, 24):
        for experts in figure.EXPERTS:
            for picked in figure.PICKED:
                quiet, *_, loud = data()["table"][f"{layers}/{experts}/{picked}"]
                assert quiet["experts"] / quiet["dense"] > 1.5 * loud["experts"] / loud["dense"]
                assert loud["any"] > quiet["any"]
                assert 0.3 < loud["replay"] / loud["dense"] < 3
    for line in sum(data()["table"].values(), []):
        assert line["any"] <= line["independent"] + 0.02


def test_one_setting_again():
    assert figure.setting(4, 8, 2) == data()["table"]["4/8/2"]
    one = figure.setting(1, 8, 2)
    assert [line["any"] for line in one] == [line["flips"] for line in one]


def test_it_shows_the_table():
    cases = [[12, 32, 2, 0.001], [1, 8, 4, 0.1], [24, 8, 1, 0.01]]
    script = f"const d = {json.dumps(data())};\n"
    for case, got in zip(
        cases,
        in_node(script + f"console.log(JSON.stringify({json.dumps(cases)}.map((c) => maths.compute(d, ...c))))"),
        strict=True,
    ):
        line = figure.setting(*case[:3])[figure.NOISES.index(case[3])]
        assert {name: got[name] for name in line} == line
        assert got["wider"] == pytest.approx(line["experts"] / line["dense"])
        assert got["left"] == pytest.approx(line["replay"] / line["dense"])


def test_it_says_what_it_shows():
    script = f"const d = {json.dumps(data())};\nconsole.log(JSON.stringify(maths.words(d, 24, 32, 4, 0.1)))"
    text, line = in_node(script), figure.setting(24, 32, 4)[-1]
    assert f"{100 * line['any']:.0f} % of the tokens" in text
    assert f"{line['experts_mean']:.2f} with experts" in text


def test_the_widget_carries_its_source_its_state_and_its_words():
    widget = RoutingExplorer(4, 8, 1, noise=0.03)
    state = widget.get_state()
    assert [state[name] for name in ("layers", "experts", "picked", "noise")] == [4, 8, 1, 0.03]
    assert state["data"] == data()
    assert state["_esm"] == in_a_notebook(MODULE)
    assert RoutingExplorer.words in repr(widget)
    assert "http" not in MODULE.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize("arguments", [{"layers": 2}, {"experts": 16}, {"picked": 8}, {"noise": 0.2}])
def test_the_widget_refuses_what_it_cannot_show(arguments):
    with pytest.raises(traitlets.TraitError):
        RoutingExplorer(**arguments)
