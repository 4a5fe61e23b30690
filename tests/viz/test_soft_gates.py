"""The two figures of the chapter on soft gates: their numbers are the library's, and the widgets say what they should.

The module runs under Node here. Where Node is missing the test is skipped and says so; tests/browser runs the same
comparison inside Chromium.
"""

import itertools
import json
import math
from pathlib import Path

import pytest
import torch
import traitlets

from rlhf_book.figures.gates import gate_gallery
from rlhf_book.figures.pass_rates import (
    OF_A_GROUP,
    RATES,
    SIZES,
    group_advantages,
    of_a_group,
    pass_rates,
    prompt_weight,
)
from rlhf_book.figures.widgets import GateGallery, PassRates, in_a_notebook
from rlhf_book.tabular import Tree
from rlhf_minimal import ALGORITHMS, gradient_weight
from tests.viz.node import run_in_node

FIGURES = Path(__file__).resolve().parents[2] / "notebooks" / "rlhf_book" / "figures"
MODULE = FIGURES / "pass_rates.mjs"
ROWS = [name for name, row in ALGORITHMS.items() if of_a_group(row)]


def cases():
    """[row, G, p]."""
    return [list(case) for case in itertools.product(ROWS, SIZES, (0.01, 0.1, 0.5, 0.93, 0.99))]


def by_loops(name, G, p):
    """The weight, group by group: all 2^G outcomes for small groups, without a binomial coefficient."""
    row, total = ALGORITHMS[name], 0.0
    for outcome in itertools.product((0.0, 1.0), repeat=G):
        rewards = torch.tensor(outcome, dtype=torch.float64)[:, None]
        context = {"group_size": G} if row.advantage.__name__ != "returns_to_go" else {}
        A = row.advantage(rewards, torch.ones(G, 1), **context)[:, 0].tolist()
        chance = math.prod(p if r else 1 - p for r in outcome)
        total += chance * sum(a / p if r else -a / (1 - p) for a, r in zip(A, outcome, strict=True)) / G
    return total


def compare(computed):
    """Used by tests/browser, too."""
    assert len(computed) == len(cases()) == len(ROWS) * 25
    for got, (name, G, p) in zip(computed, cases(), strict=True):
        exact = prompt_weight(ALGORITHMS[name], G, torch.tensor([p])).item()
        assert got == pytest.approx(exact, rel=1e-4, abs=1e-12)


def in_node(script):
    table = (
        f"const table = {json.dumps(pass_rates())};\n"
        "const row = (name) => table.rows.find((one) => one.name === name);\n"
    )
    return run_in_node(MODULE, table + script)


def test_it_looks_up_the_library_s_weights():
    call = f"{json.dumps(cases())}.map(([name, G, p]) => maths.weight(table, row(name), G, p))"
    compare(in_node(f"console.log(JSON.stringify({call}))"))


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize(("G", "p"), [(2, 0.3), (4, 0.05), (6, 0.8)])
def test_the_weight_is_that_of_all_outcomes_listed(name, G, p):
    exact = prompt_weight(ALGORITHMS[name], G, torch.tensor([p], dtype=torch.float64)).item()
    assert exact == pytest.approx(by_loops(name, G, p), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", ["rloo", "grpo", "dr_grpo", "maxrl", "pass_at_k"])
def test_the_weight_is_that_of_the_expected_update(name):
    """Every group of three completions of a tiny policy, against the gradient of its pass rate."""
    tree, G = Tree(vocab=3, length=2), 3
    theta = tree.random_logits(4).requires_grad_()
    R = (tree.tokens[:, 0] == 1).double()
    chance, share = tree.probs(theta).detach(), tree.expect(theta, R).item()
    weight = torch.zeros(len(tree), dtype=torch.float64)
    for group in itertools.product(range(len(tree)), repeat=G):
        A = ALGORITHMS[name].advantage(R[list(group)][:, None], torch.ones(G, 1), group_size=G)[:, 0]
        for n, a in zip(group, A.tolist(), strict=True):
            weight[n] += chance[list(group)].prod() * a / G
    found = tree.grad((weight * tree.sequence_logp(theta)).sum(), theta)
    omega = prompt_weight(ALGORITHMS[name], G, torch.tensor([share], dtype=torch.float64)).item()
    torch.testing.assert_close(found, omega * tree.policy_gradient(theta, R))


def test_which_rows_have_a_prompt_s_weight():
    left_out = pass_rates()["left_out"]
    assert set(ROWS) | set(left_out) == set(ALGORITHMS)
    assert {"ppo", "reinforce_pp", "scalerl", "opd", "sao", "remax", "gdpo"} <= set(left_out)
    assert {ALGORITHMS[name].advantage for name in ROWS} == set(OF_A_GROUP)
    with pytest.raises(ValueError, match="more than the rewards of one group"):
        prompt_weight(ALGORITHMS["ppo"], 8, torch.tensor([0.5]))


def test_advantages_by_the_number_of_right_ones():
    right, wrong = group_advantages(ALGORITHMS["maxrl"], 4)
    assert right.tolist() == pytest.approx([0, 3, 1, 1 / 3, 0], abs=1e-4)
    assert wrong.tolist() == pytest.approx([0, -1, -1, -1, 0], abs=1e-4)


@pytest.mark.parametrize(
    ("name", "G", "p", "words"),
    [
        ("dr_grpo", 8, 0.1, "dr_grpo: weight 0.875, the same as at p = 0.5."),
        ("maxrl", 8, 0.1, "maxrl: weight 5.22, 2.63 times that at p = 0.5."),
        ("grpo", 64, 0.99, "times that at p = 0.5."),
        ("pass_at_k", 16, 0.9, "under 0.001"),
    ],
)
def test_it_says_what_it_shows(name, G, p, words):
    assert words in in_node(f"console.log(JSON.stringify(maths.words(table, row({json.dumps(name)}), {G}, {p})))")


def test_the_share_of_dead_groups():
    assert in_node("console.log(JSON.stringify([maths.dead(2, 0.5), maths.dead(8, 0.01)]))") == pytest.approx(
        [0.5, 0.99**8 + 0.01**8]
    )


def test_the_widgets_carry_their_sources_their_numbers_and_their_words():
    prompts, tokens = PassRates("maxrl", "grpo", size=16, rate=0.2), GateGallery("cispo", "sapo", sign=-1, log2=1)
    assert [prompts.first, prompts.second, prompts.size, prompts.rate] == ["maxrl", "grpo", 16, 0.2]
    assert prompts.rates == RATES
    assert (tokens.first, tokens.second, tokens.sign, tokens.log2) == ("cispo", "sapo", -1, 1.0)
    for widget, module, alt in ((prompts, "pass_rates", PassRates.words), (tokens, "gate_gallery", GateGallery.words)):
        source = (FIGURES / f"{module}.mjs").read_text(encoding="utf-8")
        assert widget.get_state()["_esm"] == in_a_notebook(FIGURES / f"{module}.mjs")
        assert alt in repr(widget)
        assert "http" not in source.replace("http://www.w3.org/2000/svg", "")
    assert [row["name"] for row in tokens.rows] == list(ALGORITHMS)
    curve = tokens.curves[next(row["curve"] for row in tokens.rows if row["name"] == "sapo")]["-1"]
    ratios = 2 ** (torch.arange(len(curve), dtype=torch.float64) * tokens.step - tokens.reach)
    torch.testing.assert_close(
        torch.tensor(curve, dtype=torch.float64), gradient_weight("sapo", ratios, -1.0), rtol=1e-6, atol=1e-12
    )


def test_a_coarser_gallery_holds_the_same_numbers():
    fine, coarse = gate_gallery(), gate_gallery(step=0.02)
    assert coarse["curves"][0]["1"] == fine["curves"][0]["1"][::2]
    # By row, since two clips whose bounds lie between two ratios share a curve in the coarser one alone.
    for few, many in zip(coarse["rows"], fine["rows"], strict=True):
        assert few["name"] == many["name"]
        for sign in ("1", "-1"):
            assert coarse["curves"][few["curve"]][sign] == fine["curves"][many["curve"]][sign][::2]


@pytest.mark.parametrize(
    ("figure", "arguments"),
    [
        (PassRates, {"first": "ppo"}),
        (PassRates, {"size": 3}),
        (PassRates, {"rate": 1.0}),
        (GateGallery, {"first": "grop"}),
        (GateGallery, {"sign": 0}),
        (GateGallery, {"log2": 4}),
    ],
)
def test_the_widgets_refuse_what_they_cannot_show(figure, arguments):
    with pytest.raises(traitlets.TraitError):
        figure(**arguments)
