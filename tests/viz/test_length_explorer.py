"""What the length explorer shows is the gradient of the library's loss; it says what happened; the widget is strict.

The module runs under Node here; tests/browser runs the same comparison inside Chromium.
"""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
import traitlets

from rlhf_book.figures.widgets import LengthExplorer, in_a_notebook
from rlhf_minimal import ALGORITHMS, Batch, policy_loss
from rlhf_minimal.functional import advantages, aggregation
from tests.viz.node import run_in_node

MODULE = Path(__file__).resolve().parents[2] / "notebooks" / "rlhf_book" / "figures" / "length_explorer.mjs"
DIVISORS = {
    "own": aggregation.sequence_mean,
    "batch": aggregation.token_mean,
    "constant": aggregation.fixed_length,
}


def cases():
    """Every divisor and kind of advantage, on lengths and rewards at random: the arguments of `weights`."""
    generator = torch.Generator().manual_seed(0)
    for G in range(2, 9):
        for divisor in DIVISORS:
            for std in (False, True):
                lengths = torch.randint(1, 60, (G,), generator=generator).tolist()
                rewards = torch.randint(0, 2, (G,), generator=generator).tolist()
                for budget in (1000, 4000):
                    yield [lengths, rewards, divisor, budget, std]
        yield [[7] * G, [1] * G, "own", 1000, True]


def expected(lengths, rewards, divisor, budget, std):
    """The same by autograd, from the loss that trains: minus the derivative by the log-probs."""
    row = replace(ALGORITHMS["grpo"], kl=(), aggregate=DIVISORS[divisor])
    if not std:
        row = replace(row, advantage=advantages.group_centered)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).double()
    logp = torch.zeros_like(mask).requires_grad_()
    batch = Batch(logp, logp.detach(), mask, torch.tensor(rewards).double(), len(lengths), budget=budget)
    (gradient,) = torch.autograd.grad(policy_loss(row, batch), logp)
    return {"token": (-gradient[:, 0]).tolist(), "whole": (-gradient.sum(1)).tolist()}


def compare(computed):
    """Used by tests/browser, too."""
    wanted = [expected(*case) for case in cases()]
    assert len(computed) == len(wanted) > 80
    for got, want in zip(computed, wanted, strict=True):
        for name, numbers in want.items():
            assert got[name] == pytest.approx(numbers, rel=1e-9, abs=1e-15)
    assert sum(max(map(abs, want["token"])) > 0 for want in wanted) > 60


in_node = partial(run_in_node, MODULE)


def test_its_weights_are_the_librarys_gradients():
    compare(in_node(f"console.log(JSON.stringify({json.dumps(list(cases()))}.map((c) => maths.weights(...c))))"))


def test_examples_are_what_their_names_say():
    examples = in_node("console.log(JSON.stringify(maths.examples))")
    for lengths, rewards in examples.values():
        LengthExplorer(lengths, rewards)
        assert set(lengths) <= set(in_node("console.log(JSON.stringify(maths.stops))"))
        assert 0 < sum(rewards) < len(rewards)
    lengths, rewards = examples["one long, wrong"]
    assert (lengths.count(max(lengths)), rewards[lengths.index(max(lengths))]) == (1, 0)
    lengths, rewards = examples["a short right one"]
    assert (lengths.count(min(lengths)), rewards[lengths.index(min(lengths))]) == (1, 1)
    lengths, rewards = examples["a long right one"]
    assert (lengths.count(max(lengths)), rewards[lengths.index(max(lengths))]) == (1, 1)
    assert len(set(examples["all alike"][0])) == 1


@pytest.mark.parametrize(
    ("example", "divisor", "words"),
    [
        ("one long, wrong", "own", ["shortest (20 tokens) pays 2.8", "longest (800) 0.069, 40 times less", "discount"]),
        ("one long, wrong", "batch", ["pays 0.37", "(800 tokens) pays 296, 40 times what", "any response"]),
        ("one long, wrong", "constant", ["pays 0.056", "(800 tokens) pays 44", "do not change"]),
        ("a short right one", "own", ["the shortest (5 tokens) gets 17 a token", "the longest (100) 0.83"]),
        ("all alike", "own", ["Each wrong response (100 tokens) pays 0.56", "no divisor prefers anybody"]),
    ],
)
def test_it_says_what_happened(example, divisor, words):
    text = in_node(
        f"const [n, r] = maths.examples[{json.dumps(example)}];"
        f"console.log(JSON.stringify(maths.words(n, r, {json.dumps(divisor)}, 1000, false)))"
    )
    for part in words:
        assert part in text


def test_a_group_of_equals_pays_nothing():
    text = in_node("console.log(JSON.stringify(maths.words([3, 500], [0, 0], 'own', 1000, true)))")
    assert text == "All 2 are wrong: every advantage is 0, and no length matters."


def test_numbers_have_two_digits_that_count():
    said = in_node("console.log(JSON.stringify([0.1234, 0.0234, 0.00234, -0.000234, 0.0000234, 0].map(maths.say)))")
    assert said == ["123", "23", "2.3", "\u22120.23", "0.023", "0"]


def test_sliders_find_the_nearest_stop():
    stops = in_node("console.log(JSON.stringify(maths.stops))")
    found = in_node("console.log(JSON.stringify(maths.stops.map(maths.nearest)))")
    assert found == list(range(len(stops)))
    assert stops[in_node("console.log(JSON.stringify(maths.nearest(430)))")] == 500


def test_the_widget_carries_its_source_its_state_and_its_words():
    widget = LengthExplorer([3, 40, 500], [0, 1, 0], divisor="constant", budget=4000, std=True)
    state = widget.get_state()
    assert (state["lengths"], state["rewards"], state["divisor"]) == ([3, 40, 500], [0, 1, 0], "constant")
    assert (state["budget"], state["std"]) == (4000, True)
    assert state["_esm"] == in_a_notebook(MODULE)
    assert LengthExplorer.words in repr(widget)
    assert "http" not in MODULE.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")


def test_menus_and_widget_offer_the_same():
    assert in_node("console.log(JSON.stringify(maths.budgets))") == LengthExplorer.budget.values
    assert (
        list(in_node("console.log(JSON.stringify(maths.divisors))")) == LengthExplorer.divisor.values == list(DIVISORS)
    )


@pytest.mark.parametrize(
    "arguments",
    [
        {"lengths": [1]},
        {"lengths": [0] * 6},
        {"lengths": [2000] * 6},
        {"rewards": [0.5] * 6},
        {"rewards": [1] * 5},
        {"divisor": "mean"},
        {"budget": 7},
    ],
)
def test_the_widget_refuses_what_it_cannot_show(arguments):
    with pytest.raises(traitlets.TraitError):
        LengthExplorer(**arguments)
