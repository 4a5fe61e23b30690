"""The self-reward explorer shows expected policy gradients and listed votes, and says so; the widget is strict.

The module runs under Node here; tests/browser runs the same comparison inside Chromium.
"""

import json
from functools import partial
from itertools import product
from math import prod
from pathlib import Path

import pytest
import torch
import traitlets

from rlhf_book.figures.widgets import SelfRewardExplorer, in_a_notebook
from tests.viz.node import run_in_node

MODULE = Path(__file__).resolve().parents[2] / "notebooks" / "rlhf_book" / "figures" / "self_reward_explorer.mjs"


def cases():
    """The arguments of `compute`: every source, from few to many right ones, with small and large doses."""
    sources = ("judge", "majority-3", "majority-15")
    return [
        [source, share, gap, dose]
        for source in sources
        for share in (0.05, 0.4, 0.5, 0.9)
        for gap, dose in ((-0.6, 0.0), (-0.6, 0.3), (0.2, 0.05), (0.0, 1.0))
    ]


def elected(p, n):
    """The chance that most of n voters are right: by listing, or by adding one voter after the other."""
    if n <= 3:
        votes = product((0, 1), repeat=n)
        return sum(prod(p if v else 1 - p for v in vote) for vote in votes if 2 * sum(vote) > n)
    law = [1.0]
    for _ in range(n):
        law = [p * a + (1 - p) * b for a, b in zip([0.0, *law], [*law, 0.0], strict=True)]
    return sum(law[n // 2 + 1 :])


def pays(source, p, gap):
    """Mean reward of a right and of a wrong completion without a verifier."""
    if source == "judge":
        return max(gap, 0.0), max(-gap, 0.0)
    won = elected(p, int(source.split("-")[1]))
    return won, 1 - won


def trained(source, share, gap, dose, steps):
    """The share right after expected steps: the gradient of the mean reward, by autograd, rewards held fixed."""
    logit = torch.tensor(share, dtype=torch.float64).logit()
    path = [share]
    for _ in range(steps):
        x = logit.clone().requires_grad_()
        right, wrong = pays(source, path[-1], gap)
        p = x.sigmoid()
        reward = p * (dose + (1 - dose) * right) + (1 - p) * (1 - dose) * wrong
        logit = logit + torch.autograd.grad(reward, x)[0]
        path.append(logit.sigmoid().item())
    return path


def compare(computed):
    """Used by tests/browser, too."""
    assert len(computed) == len(cases()) == 48
    turned = 0
    for (source, share, gap, dose), got in zip(cases(), computed, strict=True):
        assert got["path"] == pytest.approx(trained(source, share, gap, dose, len(got["path"]) - 1), abs=1e-9)
        right, wrong = pays(source, share, gap)
        assert got["own"] == pytest.approx(right - wrong, abs=1e-12)
        needed = got["needed"]
        if right < wrong - 1e-9:
            turned += 1
            assert needed + (1 - needed) * (right - wrong) == pytest.approx(0, abs=1e-12)
            assert trained(source, share, gap, min(1.0, needed + 0.02), 60)[-1] > share
            assert trained(source, share, gap, needed - 0.02, 60)[-1] < share
        else:
            assert needed == pytest.approx(0, abs=1e-12)
    assert turned > 12


in_node = partial(run_in_node, MODULE)


def test_its_numbers_are_expected_policy_gradients():
    compare(in_node(f"console.log(JSON.stringify({json.dumps(cases())}.map((c) => maths.compute(...c))))"))


@pytest.mark.parametrize(
    ("case", "parts"),
    [
        (["judge", 0.6, -0.3, 0.05], ["earns 0.23 less", "right completions lose", "Above a dose of 0.23"]),
        (["judge", 0.6, -0.3, 0.35], ["right completions win"]),
        (["judge", 0.6, 0, 0], ["nothing pulls", "Any dose makes them win"]),
        (["majority-15", 0.4, 0, 0], ["right completions lose"]),
        (["majority-3", 0.6, 0, 0], ["right completions win", "without a dose, too"]),
    ],
)
def test_it_says_who_wins(case, parts):
    text = in_node(f"console.log(JSON.stringify(maths.words(...{json.dumps(case)})))")
    for part in parts:
        assert part in text


def test_examples_and_sliders_fit_the_widget():
    examples = in_node("console.log(JSON.stringify(maths.examples))")
    for source, share, gap, dose in examples.values():
        SelfRewardExplorer(source, share=float(share), gap=float(gap), dose=float(dose))
    for source in in_node("console.log(JSON.stringify(maths.sources))"):
        SelfRewardExplorer(source)
    for name in ("share", "gap", "dose"):
        limits = in_node(f"console.log(JSON.stringify(maths.{name}))")
        for end in ("min", "max"):
            SelfRewardExplorer(**{name: float(limits[end])})


def test_the_widget_carries_its_source_its_state_and_its_words():
    widget = SelfRewardExplorer("majority-3", share=0.3, gap=0.1, dose=0.4)
    state = widget.get_state()
    assert (state["source"], state["share"], state["gap"], state["dose"]) == ("majority-3", 0.3, 0.1, 0.4)
    assert state["_esm"] == in_a_notebook(MODULE)
    assert SelfRewardExplorer.words in repr(widget)
    assert "http" not in MODULE.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize("arguments", [{"source": "coin"}, {"share": 0.0}, {"gap": 1.1}, {"dose": -0.1}])
def test_the_widget_refuses_what_it_cannot_show(arguments):
    with pytest.raises(traitlets.TraitError):
        SelfRewardExplorer(**arguments)
