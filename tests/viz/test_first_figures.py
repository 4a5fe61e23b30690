"""The figures of the first sections: what their modules compute is the library's, and the widgets say what they should.

The modules run under Node here; tests/browser moves them. Where Node is missing these are skipped and say so.
"""

import itertools
import json
import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
import traitlets
from matplotlib.figure import Figure

from rlhf_book.figures import widgets
from rlhf_book.figures.widgets import GaeStaircase, GroupStrip, MeanBalance
from rlhf_minimal import ALGORITHMS, Batch, contrib, policy_loss
from rlhf_minimal.functional import advantages, ratios
from tests.viz.node import run_in_node

FIGURES = Path(widgets.__file__).parent
MODULES = {name: FIGURES / f"{name}.mjs" for name in ("group_strip", "gae_staircase", "mean_balance")}


def ask(name, cases, call):
    """`call`, a function of one case in JavaScript, of all cases."""
    return run_in_node(MODULES[name], f"console.log(JSON.stringify({json.dumps(cases)}.map({call})))")


def draws(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def groups():
    drawn = [(draws(G, seed=G) * 20).round().div(20).tolist() for G in (2, 3, 8, 16)]
    return [*drawn, [1, 0], [0.7] * 8, [0.1] * 3, *([1] * k + [0] * (8 - k) for k in range(9))]


@pytest.mark.parametrize("scale", ["std", "none"])
def test_the_strips_advantages_are_the_librarys(scale):
    cell = {"std": advantages.group_normalized, "none": advantages.group_centered}[scale]
    computed = ask("group_strip", groups(), f"(r) => maths.advantages(r, '{scale}')")
    for found, rewards in zip(computed, groups(), strict=True):
        R = torch.tensor(rewards, dtype=torch.float64)[:, None]
        expected = cell(R, torch.ones_like(R), group_size=len(R))[:, 0]
        torch.testing.assert_close(torch.tensor(found["advantages"], dtype=torch.float64), expected)
        assert found["mean"] == pytest.approx(R.mean().item())
        assert found["std"] == pytest.approx(R.std().item(), abs=1e-12)
        assert found["dead"] == (len(set(rewards)) == 1)


@pytest.mark.parametrize(
    ("rewards", "scale", "words"),
    [
        ([1, 0, 0, 0, 0, 0, 0, 0], "std", "1 of 8 right: a right completion gets +2.47, a wrong one \u22120.35."),
        ([1, 0, 0, 0, 0, 0, 0, 0], "std", "is pushed 7 times as hard."),
        ([1, 1, 0, 0], "std", "Both sides are pushed alike."),
        ([1, 0, 0, 0], "none", "Without the division an advantage is never larger than 1."),
        ([0.7] * 4, "std", "every advantage is 0, and the group teaches nothing"),
        ([0.7, 0.75, 0.7, 0.7], "std", "The rewards differ by little"),
        ([0.7, 0.2, 0.4, 0.1], "std", "spreads the dots 3.8 times as far apart"),
        ([0.7, 0.2, 0.4, 0.1], "none", "stay what they were"),
    ],
)  # fmt: skip
def test_the_strip_says_what_it_gives(rewards, scale, words):
    assert words in ask("group_strip", [rewards], f"(r) => maths.words(r, '{scale}')")[0]


def staircases():
    for i, (reward, lam) in enumerate(itertools.product((0, 1), (0, 0.5, 0.95, 1))):
        yield [(draws(4, seed=i) * 20).round().div(20).tolist(), reward, lam]


def test_the_staircases_sums_are_gae():
    cases = list(staircases())
    whole = ask("gae_staircase", cases, "(c) => maths.advantages(...c)")
    parts = ask("gae_staircase", cases, "(c) => [0, 1, 2, 3].map((at) => maths.parts(...c, at))")
    deltas = ask("gae_staircase", cases, "(c) => maths.deltas(c[0], c[1])")
    for (values, reward, lam), found, terms, steps in zip(cases, whole, parts, deltas, strict=True):
        V = torch.tensor([values], dtype=torch.float64)
        paid = torch.zeros_like(V)
        paid[0, -1] = reward
        cell = partial(advantages.gae, paid, torch.ones_like(V), values=V)
        torch.testing.assert_close(torch.tensor([found], dtype=torch.float64), cell(lam=float(lam)))
        torch.testing.assert_close(torch.tensor([steps], dtype=torch.float64), cell(lam=0.0))
        for at, own in enumerate(terms):
            assert sum(own) == pytest.approx(found[at])
            assert own == pytest.approx([0] * at + [lam ** (t - at) * steps[t] for t in range(at, 4)])


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ([[0.4, 0.35, 0.3, 0.1], 0, 0.5, 2], "is \u22120.20 \u00d7 1.00 \u2212 0.10 \u00d7 0.50 = \u22120.25."),
        ([[0.4, 0.35, 0.3, 0.1], 0, 0.5, 0], "Blamed most: \u201c48\u201d, \u22120.25."),
        ([[0.4, 0.4, 0.4, 0.4], 0, 1, 0], "All tokens get the same blame."),
        ([[0.4, 0.35, 0.3, 0.9], 1, 0.5, 0], "0.05 \u00d7 0.50 + 0.60 \u00d7 0.25 + 0.10 \u00d7 0.13"),
        ([[0.4, 0.35, 0.3, 0.9], 1, 0.5, 1], "the reward minus the value before the token, 1 \u2212 0.35 = +0.65."),
        ([[0.4, 0.35, 0.3, 0.9], 1, 0.5, 1], "Praised most: \u201c48\u201d"),
    ],
)
def test_the_staircase_does_the_sum_in_words(case, words):
    assert words in ask("gae_staircase", [case], "(c) => maths.words(...c)")[0]


def responses():
    examples = run_in_node(MODULES["mean_balance"], "console.log(JSON.stringify(Object.values(maths.examples)))")
    return [*examples, *(draws(40, 6) - 0.5).round(decimals=2).tolist()]


def test_the_balance_is_the_librarys_ratio_and_so_is_the_product():
    for times in (1, 10):
        computed = ask("mean_balance", responses(), f"(logs) => maths.averages(logs, {times})")
        for found, logs in zip(computed, responses(), strict=True):
            logp = torch.tensor([logs * times], dtype=torch.float64)
            old, mask = torch.zeros_like(logp), torch.ones_like(logp)
            assert found["n"] == logp.numel()
            assert found["mean"] == pytest.approx(logp.mean().item(), abs=1e-12)
            assert found["arithmetic"] == pytest.approx(logp.exp().mean().item())
            for name, cell in (("geometric", ratios.sequence), ("product", contrib.ratios.sequence_product)):
                expected = cell(logp, old, mask)
                assert found[name] == pytest.approx(expected.flatten()[0].item(), rel=1e-9)


def test_what_is_clipped_is_what_gets_no_gradient():
    counted = {"tokens": 0, "whole": 0}
    for sign in (1, -1):
        computed = ask("mean_balance", responses(), f"(logs) => maths.dropped(logs, {sign})")
        for found, logs in zip(computed, responses(), strict=True):
            for name, dropped in (("grpo", found["tokens"]), ("gspo", [found["whole"]] * 6)):
                logp = torch.tensor([logs], dtype=torch.float64, requires_grad=True)
                given = torch.zeros_like(logp), torch.ones_like(logp), torch.zeros(1), 1
                batch = Batch(logp, *given, advantages=torch.tensor([float(sign)]).double())
                (weight,) = torch.autograd.grad(policy_loss(replace(ALGORITHMS[name], kl=()), batch), logp)
                assert (weight[0] == 0).tolist() == dropped, (name, logs, sign)
            counted["tokens"] += sum(found["tokens"])
            counted["whole"] += found["whole"]
    assert counted["tokens"] > 50
    assert counted["whole"] > 20


def test_its_clip_ranges_are_those_of_the_rows():
    found = run_in_node(MODULES["mean_balance"], "console.log(JSON.stringify(maths.ranges))")
    gates = {name: ALGORITHMS[name].gate.keywords for name in ("grpo", "gspo")}
    assert found == {"token": [gates["grpo"]["low"], gates["grpo"]["high"]], "sequence": list(gates["gspo"].values())}


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ([[0.3, 0.02, -0.03, 0.05, -0.07, 0.01], 1, 1], "balance at +0.0467, so s = 1.048. It is outside"),
        (
            [[0.3, 0.02, -0.03, 0.05, -0.07, 0.01], 1, 1],
            "no token of the completion has a gradient. GRPO clips 1 of the six",
        ),
        ([[0.3, 0.02, -0.03, 0.05, -0.07, 0.01], 1, -1], "the clip does not act: every token has a gradient"),
        ([[0.3, -0.3, 0, 0, 0, 0], 1, 1], "s = 1.00000. It is inside GSPO's clip range"),
        ([[0.02] * 6, 100, 1], "Over 600 tokens the product of all ratios is 1.6e5"),
    ],
)
def test_the_balance_says_who_is_clipped(case, words):
    assert words in ask("mean_balance", [case], "(c) => maths.words(...c)")[0]


@pytest.mark.parametrize("figure", [GroupStrip, GaeStaircase, MeanBalance])
def test_a_widget_carries_its_source_its_words_and_a_picture_for_where_nothing_runs(figure):
    drawn = Figure()
    drawn.add_subplot().plot([0, 1])
    widget = figure(static=drawn)
    name = {GroupStrip: "group_strip", GaeStaircase: "gae_staircase", MeanBalance: "mean_balance"}[figure]
    state = widget.get_state()
    assert state["_esm"] == widgets.in_a_notebook(MODULES[name])
    assert "http" not in state["_esm"].replace("http://www.w3.org/2000/svg", "")
    assert len(state["alt"]) > 100
    assert state["alt"] in repr(widget)
    shown, _ = widget._repr_mimebundle_()
    assert shown["image/svg+xml"].startswith("<svg ")
    assert "application/vnd.jupyter.widget-view+json" in shown
    assert "image/svg+xml" not in figure()._repr_mimebundle_()[0]


def test_a_widget_starts_where_its_module_does():
    assert GroupStrip().rewards in run_in_node(
        MODULES["group_strip"], "console.log(JSON.stringify(Object.values(maths.examples)))"
    )
    assert GaeStaircase().values in [
        one["values"] for one in ask("gae_staircase", [0], "() => Object.values(maths.examples)")[0]
    ]
    assert MeanBalance().log_ratios in responses()
    times = run_in_node(MODULES["mean_balance"], "console.log(JSON.stringify(maths.times))")
    assert [MeanBalance(times=n).times for n in times] == times
    assert math.isclose(GaeStaircase(lam=1).lam, 1)


@pytest.mark.parametrize(
    ("figure", "arguments", "error"),
    [
        (GroupStrip, {"rewards": [1.0]}, traitlets.TraitError),
        (GroupStrip, {"rewards": [1.5, 0]}, traitlets.TraitError),
        (GroupStrip, {"scale": "mad"}, traitlets.TraitError),
        (GaeStaircase, {"values": [0.1] * 3}, traitlets.TraitError),
        (GaeStaircase, {"values": [1.1] * 4}, traitlets.TraitError),
        (GaeStaircase, {"lam": 1.1}, traitlets.TraitError),
        (GaeStaircase, {"at": 4}, traitlets.TraitError),
        (GaeStaircase, {"reward": 2}, traitlets.TraitError),
        (MeanBalance, {"log_ratios": [0] * 5}, traitlets.TraitError),
        (MeanBalance, {"log_ratios": [0.6] * 6}, traitlets.TraitError),
        (MeanBalance, {"times": 3}, traitlets.TraitError),
        (MeanBalance, {"sign": 0}, traitlets.TraitError),
        (MeanBalance, {"token_band": "0.2 / 0.2"}, TypeError),
    ],
)
def test_a_widget_refuses_what_it_cannot_show(figure, arguments, error):
    with pytest.raises(error):
        figure(**arguments)


def test_settings_are_given_in_their_order_and_once():
    with pytest.raises(TypeError, match="has the settings"):
        GroupStrip([1, 0], "std", "more")
    with pytest.raises(TypeError, match="twice"):
        GroupStrip([1, 0], rewards=[1, 0])
