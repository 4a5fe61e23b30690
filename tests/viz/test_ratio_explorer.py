"""What the ratio explorer shows is the gradient of the library's loss; it says what happened; the widget is strict.

The module runs under Node here; tests/browser runs the same comparison inside Chromium.
"""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
import traitlets

from rlhf_book.figures.widgets import RatioExplorer, in_a_notebook
from rlhf_minimal import ALGORITHMS, Batch, contrib, policy_loss
from rlhf_minimal.functional import gates, ratios
from tests.viz.node import run_in_node

MODULE = Path(__file__).resolve().parents[2] / "notebooks" / "rlhf_book" / "figures" / "ratio_explorer.mjs"
BANDS = {"0.2 / 0.2": (0.2, 0.2), "0.2 / 0.27": (0.2, 0.27), "0.03 / 0.04": (0.03, 0.04), "3e-4 / 4e-4": (3e-4, 4e-4)}


def cases():
    """Every sign, number of still tokens and pair of bands, on log-ratios at random: the arguments of `weights`."""
    generator = torch.Generator().manual_seed(0)
    for still in (0, 14, 94):
        for sign in (1, -1):
            for band in BANDS:
                for scale in (0.5, 0.02):
                    logs = (scale * (2 * torch.rand(6, generator=generator, dtype=torch.float64) - 1)).tolist()
                    yield [logs, still, sign, "0.2 / 0.2", band]
                    yield [logs, still, sign, band, "3e-4 / 4e-4"]
    yield [[0.04, 0, 0, 0, 0, 0], 94, 1, "0.2 / 0.2", "3e-4 / 4e-4"]
    yield [[0.0] * 6, 0, -1, "0.2 / 0.2", "3e-4 / 4e-4"]


def expected(logs, still, sign, token_band, sequence_band):
    """The same by autograd, from the losses that train: minus the derivative by each log-prob, times the length."""
    n = len(logs) + still
    old = torch.full((1, n), -2.0, dtype=torch.float64)
    moved = old + torch.tensor([logs + [0.0] * still], dtype=torch.float64)
    mask = torch.ones_like(old)

    def weights(name, band):
        row = replace(ALGORITHMS[name], kl=(), gate=partial(gates.clip, low=BANDS[band][0], high=BANDS[band][1]))
        logp = moved.clone().requires_grad_()
        batch = Batch(logp, old, mask, torch.zeros(1).double(), 1, advantages=torch.tensor([float(sign)]).double())
        (gradient,) = torch.autograd.grad(policy_loss(row, batch), logp)
        return (-n * gradient)[0].tolist()

    grpo, gspo = weights("grpo", token_band), weights("gspo", sequence_band)
    assert max(gspo) - min(gspo) < 1e-12
    return {
        "n": n,
        "grpo": grpo[: len(logs)],
        "gspo": gspo[0],
        "silent": sum(weight == 0 for weight in grpo),
        "product": contrib.ratios.sequence_product(moved, old, mask)[0, 0].item(),
        "geometric": ratios.sequence(moved, old, mask)[0, 0].item(),
        "arithmetic": ratios.token(moved, old, mask).mean().item(),
    }


def compare(computed):
    """Used by tests/browser, too."""
    wanted = [expected(*case) for case in cases()]
    assert len(computed) == len(wanted) > 90
    for got, want in zip(computed, wanted, strict=True):
        for name, numbers in want.items():
            assert got[name] == pytest.approx(numbers, rel=1e-9, abs=1e-12)
    assert any(want["gspo"] == 0 and want["silent"] == 0 for want in wanted)
    assert any(want["gspo"] != 0 and want["silent"] > 0 for want in wanted)


in_node = partial(run_in_node, MODULE)


def test_its_weights_are_the_librarys_gradients():
    compare(in_node(f"console.log(JSON.stringify({json.dumps(list(cases()))}.map((c) => maths.weights(...c))))"))


def test_examples_are_what_their_names_say():
    examples = in_node("console.log(JSON.stringify(maths.examples))")
    assert len(set(examples["one drift"][0])) == 1
    assert sum(examples["signs that cancel"][0]) == pytest.approx(0)
    assert sum(x != 0 for x in examples["one jump"][0]) == 1
    small, still = examples["a small jump in 100"]
    assert (sum(x != 0 for x in small), len(small) + still) == (1, 100)
    assert all(len(logs) == 6 and max(map(abs, logs)) <= 0.5 for logs, _ in examples.values())


@pytest.mark.parametrize(
    ("example", "sign", "words"),
    [
        ("one drift", 1, ["no token is clipped, 6 of 6 learn", "1.020", "all 6 tokens are dropped", "inside GRPO's"]),
        ("signs that cancel", 1, ["2 of 6 tokens are clipped", "ratio 1.00000, inside the band"]),
        ("one jump", 1, ["1 of 6 tokens is clipped", "all 6 tokens are dropped", "is outside GRPO's band"]),
        ("one jump", -1, ["no token is clipped", "it has moved the wrong way: all 6 tokens learn"]),
        ("a small jump in 100", 1, ["100 of 100 learn", "1.00040, outside the band: all 100 tokens are dropped"]),
    ],
)
def test_it_says_what_happened(example, sign, words):
    text = in_node(
        f"const [logs, still] = maths.examples[{json.dumps(example)}];"
        f"console.log(JSON.stringify(maths.words(logs, still, {sign}, '0.2 / 0.2', '3e-4 / 4e-4')))"
    )
    for part in words:
        assert part in text


def test_the_widget_carries_its_source_its_state_and_its_words():
    widget = RatioExplorer([0.1] * 6, still=94, sign=-1, token_band="0.2 / 0.27", sequence_band="0.03 / 0.04")
    state = widget.get_state()
    assert (state["log_ratios"], state["still"], state["sign"]) == ([0.1] * 6, 94, -1)
    assert (state["token_band"], state["sequence_band"]) == ("0.2 / 0.27", "0.03 / 0.04")
    assert state["_esm"] == in_a_notebook(MODULE)
    assert RatioExplorer.words in repr(widget)
    assert "http" not in MODULE.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")


def test_menus_and_widget_offer_the_same_bands():
    offered = in_node("console.log(JSON.stringify(maths.bands))")
    assert {name: tuple(band) for name, band in offered.items()} == BANDS
    assert tuple(offered) == RatioExplorer.BANDS


@pytest.mark.parametrize(
    "arguments",
    [{"log_ratios": [0.1]}, {"log_ratios": [0.6] * 6}, {"still": 3}, {"sign": 0}, {"sequence_band": "0.1 / 0.1"}],
)
def test_the_widget_refuses_what_it_cannot_show(arguments):
    with pytest.raises(traitlets.TraitError):
        RatioExplorer(**arguments)
