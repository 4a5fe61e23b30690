"""What the target explorer shows is where a fit by descent ends; it says what happened; the widget is strict.

The module runs under Node here; tests/browser runs the same comparison inside Chromium.
"""

import json
from functools import partial
from pathlib import Path

import pytest
import torch
import traitlets

from rlhf_book.figures.widgets import TargetExplorer, in_a_notebook
from tests.viz.node import run_in_node

MODULE = Path(__file__).resolve().parents[2] / "notebooks" / "rlhf_book" / "figures" / "target_explorer.mjs"


def cases():
    """Old probabilities and rewards at random, at several temperatures: the arguments of `compute`."""
    generator = torch.Generator().manual_seed(0)
    for tau in (0.2, 0.5, 2.0):
        for _ in range(6):
            old, rewards = torch.rand(2, 4, generator=generator, dtype=torch.float64).tolist()
            total = sum(old) + 0.4
            yield [[(q + 0.1) / total for q in old], [round(r, 1) for r in rewards], tau]
    yield [[0.1, 0.2, 0.3, 0.4], [1, 0, 0, 0], 0.3]


def expected(old, rewards, tau):
    """The same by minimising the two squared losses over logits."""
    q, r = (torch.tensor(x, dtype=torch.float64) for x in (old, rewards))
    constant = tau * (q * (r / tau).exp()).sum().log()
    ends = []
    for c in (constant, (q * r).sum()):
        logits = q.log().clone().requires_grad_()
        options = {"line_search_fn": "strong_wolfe", "tolerance_grad": 1e-12, "tolerance_change": 1e-16}
        lbfgs = torch.optim.LBFGS([logits], max_iter=500, **options)

        def closure(logits=logits, c=c, lbfgs=lbfgs):
            lbfgs.zero_grad()
            loss = (q * (r - c - tau * (logits.log_softmax(0) - q.log())) ** 2).sum()
            loss.backward()
            return loss

        for _ in range(3):
            lbfgs.step(closure)
        ends.append(logits.detach().softmax(0).tolist())
    return {"constant": constant.item(), "mean": (q * r).sum().item(), "exact": ends[0], "fitted": ends[1]}


def compare(computed):
    """Used by tests/browser, too."""
    wanted = [expected(*case) for case in cases()]
    assert len(computed) == len(wanted) > 15
    for got, want in zip(computed, wanted, strict=True):
        for name, number in want.items():
            assert got[name] == pytest.approx(number, abs=1e-5)
        assert got["gap"] == pytest.approx(want["constant"] - want["mean"])
    assert max(abs(a - b) for want in wanted for a, b in zip(want["exact"], want["fitted"], strict=True)) > 0.2


in_node = partial(run_in_node, MODULE)


def test_its_numbers_are_those_of_a_fit():
    compare(in_node(f"console.log(JSON.stringify({json.dumps(list(cases()))}.map((c) => maths.compute(...c))))"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([[0.1, 0.2, 0.3, 0.4], [1, 0, 0, 0], 0.1], "The mean reward holds the policy back."),
        ([[0.1, 0.2, 0.3, 0.4], [1, 0, 0, 0], 5], "The two ends hardly differ."),
        ([[0.1, 0.2, 0.3, 0.4], [1, 1, 1, 1], 0.1], "All completions pay alike"),
    ],
)
def test_it_says_what_happened(arguments, words):
    assert words in in_node(f"console.log(JSON.stringify(maths.words(...{json.dumps(arguments)})))")


def test_its_words_carry_its_numbers():
    old, rewards, tau = [0.1, 0.2, 0.3, 0.4], [1, 0, 0, 0], 0.3
    want = expected(old, rewards, tau)
    text = in_node(f"console.log(JSON.stringify(maths.words({old}, {rewards}, {tau})))")
    assert f"of weight {want['constant'] - want['mean']:.3f}" in text
    assert f"{want['exact'][0]:.3f} with τ log Z, {want['fitted'][0]:.3f} with the mean reward" in text


def test_small_and_large_temperatures_stay_finite():
    for tau in (0.03, 5):
        for rewards in ([1, 0, 0, 0], [1, 1, 1, 0], [0.5, 0.5, 0.5, 0.5], [0, 0, 0, 1]):
            got = in_node(f"console.log(JSON.stringify(maths.compute([0.1, 0.2, 0.3, 0.4], {rewards}, {tau})))")
            for name in ("exact", "fitted"):
                assert sum(got[name]) == pytest.approx(1)
                assert min(got[name]) >= 0
            assert got["gap"] >= -1e-12


def test_the_widget_carries_its_source_its_state_and_its_words():
    widget = TargetExplorer([1, 0.5, 0, 0], [0.25] * 4, tau=1.0)
    state = widget.get_state()
    assert (state["rewards"], state["old"], state["tau"]) == ([1, 0.5, 0, 0], [0.25] * 4, 1.0)
    assert state["_esm"] == in_a_notebook(MODULE)
    assert TargetExplorer.words in repr(widget)
    assert "http" not in MODULE.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")


def test_menu_examples_and_widget_offer_the_same():
    assert in_node("console.log(JSON.stringify(maths.taus))") == TargetExplorer.tau.values
    for old, rewards in in_node("console.log(JSON.stringify(maths.examples))").values():
        TargetExplorer(rewards, old)


@pytest.mark.parametrize(
    "arguments", [{"rewards": [1, 0]}, {"rewards": [2, 0, 0, 0]}, {"tau": 0.11}, {"rewards": [-1, 0, 0, 0]}]
)
def test_the_widget_refuses_what_it_cannot_show(arguments):
    with pytest.raises(traitlets.TraitError):
        TargetExplorer(**arguments)


@pytest.mark.parametrize("old", [[0.5, 0.5, 0.5, 0.5], [1, 0, 0, 0]])
def test_the_widget_refuses_what_is_no_distribution(old):
    with pytest.raises(ValueError, match="sum to 1"):
        TargetExplorer(old=old)
