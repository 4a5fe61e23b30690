"""What the landscape explorer computes is what autograd computes; the widget says and saves what it should.

The module runs under Node here. Where Node is missing the test is skipped and says so; tests/browser runs the same
comparison inside Chromium.
"""

import itertools
import json
from functools import partial
from pathlib import Path

import pytest
import torch
import traitlets

from rlhf_book.figures.widgets import LandscapeExplorer, in_a_notebook
from tests.viz.node import run_in_node

MODULE = Path(__file__).resolve().parents[2] / "notebooks" / "rlhf_book" / "figures" / "landscape_explorer.mjs"
BASELINES, BATCHES = ("none", "mean", "best", "useless"), (1, 4, 16, 64, 256)
REWARDS = torch.tensor([3.0, 2.0, 1.0], dtype=torch.float64)


def cases():
    """[a, b, baseline, batch]."""
    at = (-3.0, -1.0, 0.0, 0.5, 3.0)
    return [list(case) for case in itertools.product(at, at, BASELINES, (1, 16))]


def exact(a, b):
    """Probabilities, expected reward, its gradient, and the gradient of each log-probability, by autograd."""
    theta = torch.tensor([a, b], dtype=torch.float64, requires_grad=True)
    logp = torch.cat([theta, torch.zeros(1, dtype=torch.float64)]).log_softmax(0)
    J = (logp.exp() * REWARDS).sum()
    (gradient,) = torch.autograd.grad(J, theta, retain_graph=True)
    scores = torch.stack([torch.autograd.grad(x, theta, retain_graph=True)[0] for x in logp])
    return logp.exp().detach(), J.item(), gradient, scores


def noise_of(p, scores, baseline, batch):
    """The root of the expected squared distance of one estimate from its mean."""
    one = (REWARDS - baseline)[:, None] * scores
    return ((p[:, None] * (one - p @ one) ** 2).sum() / batch).sqrt().item()


def compare(computed):
    """Used by tests/browser, too."""
    assert len(computed) == len(cases()) == 200
    for got, (a, b, kind, batch) in zip(computed, cases(), strict=True):
        p, J, gradient, scores = exact(a, b)
        assert got["p"] == pytest.approx(p.tolist())
        assert got["J"] == pytest.approx(J)
        assert got["gradient"] == pytest.approx(gradient.tolist(), abs=1e-12)
        assert got["length"] == pytest.approx(gradient.norm().item())
        assert got["noise"] == pytest.approx(noise_of(p, scores, got["baseline"], batch), rel=1e-9, abs=1e-9)
        if kind == "mean":
            assert got["baseline"] == pytest.approx(J)
        if kind == "best":  # no constant on either side has less noise
            around = [noise_of(p, scores, got["baseline"] + d, batch) for d in (-1e-3, 1e-3)]
            assert got["noise"] < min(around)
        if kind == "useless":
            assert got["noise"] == pytest.approx(noise_of(p, scores, 0.0, batch))


in_node = partial(run_in_node, MODULE)


def test_its_numbers_are_autograds():
    compare(in_node(f"console.log(JSON.stringify({json.dumps(cases())}.map((c) => maths.measure(...c))))"))


@pytest.mark.parametrize("kind", BASELINES)
@pytest.mark.parametrize("batch", [1, 16])
def test_the_arrows_have_the_mean_and_the_noise_that_it_says(kind, batch):
    at = [-1.0, 0.5, kind, batch]
    given = json.dumps(at)[1:-1]
    measured, arrows = in_node(
        f"console.log(JSON.stringify([maths.measure({given}), maths.estimates({given}, 7, 4000)]))"
    )
    drawn, exact_mean = torch.tensor(arrows, dtype=torch.float64), torch.tensor(measured["gradient"]).double()
    assert (drawn.mean(0) - exact_mean).norm() < 4 * measured["noise"] / 4000**0.5
    assert (drawn - exact_mean).square().sum(1).mean().sqrt().item() == pytest.approx(measured["noise"], rel=0.06)


def test_the_same_draw_comes_back_and_another_differs():
    call = "maths.estimates(0, 0, 'mean', 4, {})"
    first, same, other = in_node(f"console.log(JSON.stringify([{call.format(3)}, {call.format(3)}, {call.format(4)}]))")
    assert first == same != other
    assert len(first) == 60


def test_the_lines_are_of_equal_expected_reward():
    for level in (1.2, 1.8, 2.0, 2.6):
        points = in_node(f"console.log(JSON.stringify(maths.level({level})))")
        assert len(points) > 20
        assert [exact(a, b)[1] for a, b in points] == pytest.approx([level] * len(points))


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ([-1.0, 0.5, "none", 1, 0], "No baseline. Expected reward 1.79. The exact gradient has length 0.187"),
        ([-1.0, 0.5, "none", 1, 0], "from 1 sample has"),
        ([-1.0, 0.5, "mean", 16, 0], "Baseline: the mean reward, 1.79."),
        ([-1.0, 0.5, "best", 16, 0], "the best constant, 2.07"),
        ([-1.0, 0.5, "useless", 16, 0], "exactly the noise of no baseline"),
        ([0.0, 0.0, "best", 256, 0], "60 of 60 arrows point uphill"),
    ],
)
def test_it_says_what_happened(case, words):
    assert words in in_node(f"console.log(JSON.stringify(maths.words(...{json.dumps(case)})))")


def test_the_widget_carries_its_source_its_state_and_its_words():
    widget = LandscapeExplorer(1, -2, baseline="best", batch=4, draw=5)
    state = widget.get_state()
    assert [state[name] for name in ("a", "b", "baseline", "batch", "draw")] == [1.0, -2.0, "best", 4, 5]
    assert state["_esm"] == in_a_notebook(MODULE)
    assert state["alt"] == LandscapeExplorer.words
    assert LandscapeExplorer.words in repr(widget)
    assert "http" not in MODULE.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")


def test_the_menus_and_the_widget_offer_the_same():
    text = MODULE.read_text(encoding="utf-8")
    assert f"const BASELINES = {json.dumps(BASELINES)};" in text
    assert f"const BATCHES = {json.dumps(BATCHES)};" in text
    assert tuple(LandscapeExplorer.baseline.values) == BASELINES
    assert tuple(LandscapeExplorer.batch.values) == BATCHES


@pytest.mark.parametrize("arguments", [{"a": 3.5}, {"b": -4}, {"baseline": "wise"}, {"batch": 5}, {"draw": -1}])
def test_the_widget_refuses_what_it_cannot_show(arguments):
    with pytest.raises(traitlets.TraitError):
        LandscapeExplorer(**arguments)
