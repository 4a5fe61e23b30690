"""What the KL explorer shows is what the library's estimators give by autograd; it says what happened; the widget is
strict.

The module runs under Node here; tests/browser runs the same comparison inside Chromium.
"""

import json
from functools import partial
from pathlib import Path

import pytest
import torch
import traitlets

from rlhf_book.figures.widgets import KlExplorer, in_a_notebook
from rlhf_minimal.functional import kl
from tests.viz.node import run_in_node

MODULE = Path(__file__).resolve().parents[2] / "notebooks" / "rlhf_book" / "figures" / "kl_explorer.mjs"
PLACES = ("loss", "reward", "weighted")
ESTIMATORS = {"k1": kl.k1, "k2": kl.k2, "k3": kl.k3}


def cases():
    """Logits at random, near and far, at every place: the arguments of `compute`."""
    generator = torch.Generator().manual_seed(0)
    for scale in (0.1, 1.0, 3.0):
        for _ in range(10):
            policy, reference = (2 * torch.rand(2, 3, generator=generator) - 1).mul(scale).tolist()
            for place in PLACES:
                yield [policy, reference, place]
    yield [[0.5, -1, 2], [0.5, -1, 2], "loss"]


def expected(policy, reference, place):
    """The same from the library's estimators: every outcome is a sample, and sampling is not differentiated."""
    theta = torch.tensor(policy, dtype=torch.float64).requires_grad_()
    logp, ref = theta.log_softmax(-1), torch.tensor(reference, dtype=torch.float64).log_softmax(-1)
    chance = logp.exp().detach()

    def by_logits(scalar):
        return torch.autograd.grad(scalar, theta, retain_graph=True)[0].tolist()

    rows = []
    for estimator in ESTIMATORS.values():
        value = estimator(logp, ref)
        term = {"loss": value, "reward": value.detach() * logp, "weighted": value * (logp - logp.detach()).exp()}[place]
        mean = (chance * value.detach()).sum()
        spread = (chance * (value.detach() - mean) ** 2).sum().sqrt()
        rows.append({"mean": mean.item(), "spread": spread.item(), "gradient": by_logits((chance * term).sum())})
    reverse, forward = (logp.exp() * (logp - ref)).sum(), (ref.exp() * (ref - logp)).sum()
    exact = [{"mean": one.item(), "gradient": by_logits(one)} for one in (reverse, forward)]
    return {"rows": rows, "reverse": exact[0], "forward": exact[1]}


def compare(computed):
    """Used by tests/browser, too."""
    wanted = [expected(*case) for case in cases()]
    assert len(computed) == len(wanted) > 80
    for got, want in zip(computed, wanted, strict=True):
        pairs = [(got["reverse"], want["reverse"]), (got["forward"], want["forward"])]
        pairs += list(zip(got["rows"], want["rows"], strict=True))
        for shown, right in pairs:
            for name, number in right.items():
                assert shown[name] == pytest.approx(number, rel=1e-8, abs=1e-7 if name == "spread" else 1e-12)
    assert sum(want["reverse"]["mean"] > 0.5 for want in wanted) > 20


in_node = partial(run_in_node, MODULE)


def test_its_numbers_are_the_librarys():
    compare(in_node(f"console.log(JSON.stringify({json.dumps(list(cases()))}.map((c) => maths.compute(...c))))"))


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("loss", ["k1: pulls nowhere", "k2: the gradient of KL(π‖ref)", "k3: the gradient of KL(ref‖π)"]),
        ("reward", ["k1: the gradient of KL(π‖ref)", "k2: another gradient", "k3: another gradient"]),
        ("weighted", ["k1: the gradient of KL(π‖ref)", "k2: another gradient", "k3: the gradient of KL(π‖ref)"]),
    ],
)
def test_it_says_which_gradient_is_which(place, words):
    text = in_node(
        f"console.log(JSON.stringify(maths.words(...maths.examples.far.concat({json.dumps(place)}))))"
    ).replace("; As", ". As")
    for part in words:
        assert part in text


def test_its_values_are_those_of_the_estimators():
    policy, reference = in_node("console.log(JSON.stringify(maths.examples.far))")
    exact = expected(policy, reference, "loss")
    text = in_node("console.log(JSON.stringify(maths.words(...maths.examples.far, 'loss')))")
    k1, k2, k3 = (row["mean"] for row in exact["rows"])
    assert k1 == pytest.approx(k3) == pytest.approx(exact["reverse"]["mean"])
    assert f"exact {k1:.3f}; on average k1 {k1:.3f}, k2 {k2:.3f}, k3 {k3:.3f}" in text


def test_examples_are_what_their_names_say():
    examples = in_node("console.log(JSON.stringify(maths.examples))")
    distance = {name: expected(*pair, "loss")["reverse"]["mean"] for name, pair in examples.items()}
    assert distance["near"] < 0.1 < 1 < distance["far"]
    policy, reference = (torch.tensor(x, dtype=torch.float64).softmax(0) for x in examples["surer than the reference"])
    assert policy.max() > 0.9 > reference.max()
    policy, reference = (
        torch.tensor(x, dtype=torch.float64).softmax(0) for x in examples["an outcome is hardly drawn"]
    )
    assert policy.min() < 0.01 < 0.5 < reference[policy.argmin()]
    for pair in examples.values():
        KlExplorer(*pair)


def test_equal_policies_have_nothing_to_say():
    text = in_node("console.log(JSON.stringify(maths.words([1, 0, 2], [1, 0, 2], 'loss')))")
    assert text.endswith("every divergence, estimate and gradient is 0.")


def test_the_widget_carries_its_source_its_state_and_its_words():
    widget = KlExplorer([1, 0, -1], [0, 0.5, 0], place="weighted")
    state = widget.get_state()
    assert (state["policy"], state["reference"], state["place"]) == ([1, 0, -1], [0, 0.5, 0], "weighted")
    assert state["_esm"] == in_a_notebook(MODULE)
    assert KlExplorer.words in repr(widget)
    assert "http" not in MODULE.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")


def test_menus_and_widget_offer_the_same():
    assert list(in_node("console.log(JSON.stringify(maths.places))")) == KlExplorer.place.values == list(PLACES)
    assert in_node("console.log(JSON.stringify(maths.estimators))") == list(ESTIMATORS)
    limits = in_node("console.log(JSON.stringify(maths.range))")
    KlExplorer([limits["min"]] * 3, [limits["max"]] * 3)


@pytest.mark.parametrize(
    "arguments", [{"policy": [1, 2]}, {"policy": [1, 2, 3, 3]}, {"reference": [9, 0, 0]}, {"place": "advantage"}]
)
def test_the_widget_refuses_what_it_cannot_show(arguments):
    with pytest.raises(traitlets.TraitError):
        KlExplorer(**arguments)
