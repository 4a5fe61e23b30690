"""What the trust region explorer computes is what autograd and a solver compute; it says and saves what it should.

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

from rlhf_book.figures.widgets import TrustRegionExplorer, in_a_notebook
from tests.viz.node import run_in_node

MODULE = Path(__file__).resolve().parents[2] / "notebooks" / "rlhf_book" / "figures" / "trust_region_explorer.mjs"
DELTAS, RANGES, PRICES = (0.001, 0.01, 0.05), (0.1, 0.2, 0.3), (1, 3, 10, 30)
REWARDS = torch.tensor([3.0, 2.0, 1.0], dtype=torch.float64)


def cases():
    """[a, b, delta, eps, beta]."""
    settings = [(0.001, 0.1, 30), (0.01, 0.2, 3), (0.05, 0.3, 1)]
    at = (-3.0, -1.0, 0.5, 3.0)
    return [[a, b, *setting] for a, b, setting in itertools.product(at, at, settings)]


def logp(theta):
    return torch.cat([theta, theta.new_zeros(1)]).log_softmax(0)


def kl(p, q):
    return (p * (p / q).log()).sum()


def directions(a, b):
    """Old probabilities, advantages, the gradient, and F^-1 g with F the Hessian of the KL; all by autograd."""
    theta = torch.tensor([a, b], dtype=torch.float64, requires_grad=True)
    p = logp(theta).exp().detach()
    A = REWARDS - p @ REWARDS
    (g,) = torch.autograd.grad((logp(theta).exp() * A).sum(), theta)
    F = torch.autograd.functional.hessian(lambda x: kl(p, logp(x).exp()), theta.detach())
    return theta.detach(), p, A, g, torch.linalg.solve(F, g)


def compare(computed):
    """Used by tests/browser, too."""
    assert len(computed) == len(cases()) == 48
    for got, (a, b, delta, eps, beta) in zip(computed, cases(), strict=True):
        theta, p, A, *ways = directions(a, b)
        assert got["p"] == pytest.approx(p.tolist())
        assert got["A"] == pytest.approx(A.tolist(), abs=1e-12)
        for kind, step in got["steps"].items():
            q = torch.tensor(step["q"], dtype=torch.float64)
            assert q.sum().item() == pytest.approx(1)
            assert step["ratios"] == pytest.approx((q / p).tolist())
            assert step["kl"] == pytest.approx(kl(p, q).item(), rel=1e-6, abs=1e-12), kind
            assert step["gain"] == pytest.approx((q @ A).item(), abs=1e-12)
            assert step["inside"] == bool(((q / p - 1).abs() <= eps).all())
        for kind, way in zip(("plain", "natural"), ways, strict=True):
            step = got["steps"][kind]
            assert step["kl"] == pytest.approx(delta, rel=1e-6)
            q = torch.tensor(step["q"], dtype=torch.float64)
            moved = (q[:2] / q[2]).log() - theta  # along the way, and forwards
            assert (moved @ way).item() == pytest.approx((moved.norm() * way.norm()).item(), rel=1e-6)
        assert got["steps"]["natural"]["gain"] > 0
        q = torch.tensor(got["steps"]["penalty"]["q"], dtype=torch.float64)  # stationary: A + beta p / q is a constant
        slope = A + beta * p / q
        assert (slope - slope.mean()).abs().max() < 1e-6 * slope.abs().max()


in_node = partial(run_in_node, MODULE)


def test_its_numbers_are_those_of_autograd_and_a_solver():
    compare(in_node(f"console.log(JSON.stringify({json.dumps(cases())}.map((c) => maths.measure(...c))))"))


@pytest.mark.parametrize(("at", "eps"), [((-2.0, 0.5), 0.2), ((0.0, 0.0), 0.1), ((1.0, -1.0), 0.2)])
def test_the_steps_on_the_clipped_objective_are_those_of_autograd(at, eps):
    """Each gradient by autograd, of min(r A, clip(r) A); a rounding at the edge may add or leave out a step."""
    theta, p, A, *_ = directions(*at)
    for _ in range(2000):
        leaf = theta.clone().requires_grad_()
        r = logp(leaf).exp() / p
        inner = torch.minimum(r * A, r.clamp(1 - eps, 1 + eps) * A)
        (g,) = torch.autograd.grad((p * inner).sum(), leaf)
        if g.norm() < 1e-9:
            break
        theta = theta + 0.05 * g
    given = json.dumps([*at, 0.01, eps, 3])[1:-1]
    found = in_node(f"console.log(JSON.stringify(maths.measure({given}).steps.clip.q))")
    assert found == pytest.approx(logp(theta).exp().tolist(), abs=2e-3)


def test_the_edges_are_where_they_say():
    p = [0.05, 0.6, 0.35]
    edges = in_node(f"console.log(JSON.stringify(maths.edges({p}, 0.01, 0.2)))")
    old = torch.tensor(p, dtype=torch.float64)
    for kind, points in edges.items():
        assert len(points) == 240
        for x, y in points:
            q = torch.tensor([x, y, 1 - x - y], dtype=torch.float64)
            far = kl(old, q).item() if kind == "kl" else (q / old - 1).abs().max().item()
            assert far == pytest.approx(0.01 if kind == "kl" else 0.2, rel=1e-6)


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (
            [-2.0, 0.5, 0.01, 0.2, 3],
            "The best action has probability 0.049. At KL 0.01 the natural gradient gains 0.079",
        ),
        ([-2.0, 0.5, 0.01, 0.2, 3], "the plain one gains 0.059, and makes the best action rarer (ratio 0.91)"),
        ([-2.0, 0.5, 0.01, 0.2, 3], "end outside its box, at KL 0.0418. The penalty with \u03b2 = 3 ends at KL 0.0183"),
        ([0.0, 0.0, 0.01, 0.2, 3], "the plain one gains 0.103. Steps"),
    ],
)
def test_it_says_what_happened(case, words):
    assert words in in_node(f"console.log(JSON.stringify(maths.words(...{json.dumps(case)})))")


def test_two_steps_are_told_without_clip_and_penalty():
    given = "-2, 0.5, 0.01, 0.2, 3"
    two, four = in_node(f"""console.log(JSON.stringify(
        [maths.words({given}, ["plain", "natural"]), maths.words({given})]))""")
    assert two.endswith("(ratio 0.91).")
    assert four.startswith(two)
    assert TrustRegionExplorer(steps=2).get_state()["steps"] == 2
    assert TrustRegionExplorer().steps == 4


def test_the_widget_carries_its_source_its_state_and_its_words():
    widget = TrustRegionExplorer(1, -2, delta=0.05, eps=0.1, beta=30)
    state = widget.get_state()
    assert [state[name] for name in ("a", "b", "delta", "eps", "beta")] == [1.0, -2.0, 0.05, 0.1, 30]
    assert state["_esm"] == in_a_notebook(MODULE)
    assert state["alt"] == TrustRegionExplorer.words
    assert TrustRegionExplorer.words in repr(widget)
    assert "http" not in MODULE.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")


def test_the_menus_and_the_widget_offer_the_same():
    text = MODULE.read_text(encoding="utf-8")
    for name, trait, values in (
        ("DELTAS", "delta", DELTAS),
        ("RANGES", "eps", RANGES),
        ("PRICES", "beta", PRICES),
    ):
        assert f"{name} = {json.dumps(values)}" in text
        assert tuple(getattr(TrustRegionExplorer, trait).values) == values


@pytest.mark.parametrize("arguments", [{"a": 3.5}, {"b": -4}, {"delta": 0.02}, {"eps": 0.5}, {"beta": 2}, {"steps": 3}])
def test_the_widget_refuses_what_it_cannot_show(arguments):
    with pytest.raises(traitlets.TraitError):
        TrustRegionExplorer(**arguments)
