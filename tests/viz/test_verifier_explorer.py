"""The verifier explorer: its pushes are expected steps of the library's advantages, its words fit."""

import itertools
import json
from functools import partial
from pathlib import Path

import pytest
import torch
import traitlets

from rlhf_book.exercises.rlvr.noisy_step import my_step_factor
from rlhf_book.figures.widgets import VerifierExplorer, in_a_notebook
from rlhf_minimal.functional import advantages
from tests.viz.node import run_in_node

MODULE = Path(__file__).resolve().parents[2] / "notebooks" / "rlhf_book" / "figures" / "verifier_explorer.mjs"
RULES = {"mean": advantages.group_centered, "zscore": advantages.group_normalized}
NAMES = ("honest", "exploit", "passes", "accepts", "rejects")
G = 3  # of the groups that are listed


def cases():
    """Shares, chances and rules: the arguments of `push`, with a group that can be listed."""
    generator = torch.Generator().manual_seed(0)
    for number in range(12):
        shares = torch.rand(3, generator=generator, dtype=torch.float64) + 0.05
        chances = torch.rand(3, generator=generator, dtype=torch.float64)
        yield [(shares / shares.sum()).tolist(), chances.tolist(), list(RULES)[number % 2], G]


def listed(shares, chances, rule):
    """The expected A x gradient of log-share, over every group of three completions and every verdict."""
    total = torch.zeros(3, dtype=torch.float64)
    for kinds in itertools.product(range(3), repeat=G):
        for verdicts in itertools.product((0.0, 1.0), repeat=G):
            chance = 1.0
            for kind, verdict in zip(kinds, verdicts, strict=True):
                chance *= shares[kind] * (chances[kind] if verdict else 1 - chances[kind])
            R = torch.tensor(verdicts, dtype=torch.float64)[:, None]
            A = RULES[rule](R, torch.ones_like(R), group_size=G)
            score = torch.eye(3, dtype=torch.float64)[kinds[0]] - torch.tensor(shares)
            total += chance * A[0, 0] * score
    return total.tolist()


def compare(computed):
    """Used by tests/browser, too. The library adds 1e-4 to a spread, the figure nothing."""
    wanted = list(cases())
    assert len(computed) == len(wanted)
    for got, (shares, chances, rule, _) in zip(computed, wanted, strict=True):
        assert got == pytest.approx(listed(shares, chances, rule), abs=2e-4)
    assert max(abs(x) for got in computed for x in got) > 0.02


in_node = partial(run_in_node, MODULE)


def said(*arguments):
    return in_node(f"console.log(JSON.stringify(maths.words(...{json.dumps(arguments)})))")


def computed(*arguments):
    return in_node(f"console.log(JSON.stringify(maths.compute(...{json.dumps(arguments)})))")


def test_its_pushes_are_expected_steps_of_the_librarys_advantages():
    compare(in_node(f"console.log(JSON.stringify({json.dumps(list(cases()))}.map((c) => maths.push(...c))))"))


@pytest.mark.parametrize("rule", RULES)
def test_without_an_exploit_noise_is_the_factor_of_the_chapter(rule):
    """Two kinds are one logit: its push is p (1 - p) times the factor that the exercise asks for."""
    found = computed(20, 0, 0, 30, 10, rule)
    factor = my_step_factor(0.2, 0.3, 0.1, 8, rule == "zscore")
    assert found["push"][0] == pytest.approx(0.2 * 0.8 * factor, abs=1e-9)


def test_examples_are_what_their_names_say():
    examples = in_node("console.log(JSON.stringify(maths.examples))")
    for values in examples.values():
        VerifierExplorer(**dict(zip(NAMES, values, strict=True)))
    for rule in RULES:
        hole, lot, mended = (computed(*examples[name], rule) for name in ("a hole", "as many, by lot", "mended"))
        assert hole["falsePositives"] == pytest.approx(lot["falsePositives"], abs=0.02)
        assert hole["path"][-1][0] < 0.18 < lot["path"][-1][0]
        assert mended["path"][-1][0] > lot["path"][-1][0]
        assert hole["rewards"][-1] > hole["rewards"][0]
        rare = computed(*examples["a rare exploit"], rule)
        assert rare["path"][-1][0] > 0.98
        assert rare["path"][-1][1] < 0.01  # in the steps that are shown the exploit loses, and later it wins
        followed = f"maths.path(maths.shares(18, 1), maths.chances(100, 0, 15), {json.dumps(rule)})[10000]"
        assert in_node(f"maths.steps = 10000; console.log(JSON.stringify({followed}))")[1] > 0.98


def test_it_says_what_happened():
    assert "it learns the hole" in said(18, 30, 100, 0, 0, "mean")
    assert "it learns the hole" not in said(18, 30, 0, 0, 0, "mean")
    assert "followed for long enough, it wins" in said(18, 1, 100, 0, 15, "mean")
    assert "Hardly anything moves" in said(20, 0, 0, 50, 50, "mean")
    found, text = computed(18, 30, 100, 0, 0, "zscore"), said(18, 30, 100, 0, 0, "zscore")
    assert f"{found['rewards'][0]:.2f} to {found['rewards'][-1]:.2f}" in text
    assert f"{round(100 * found['falsePositives'])} % of the wrong completions pass" in text


def test_the_widget_carries_its_source_its_state_and_its_words():
    widget = VerifierExplorer(20, 5, passes=100, accepts=10, rejects=20, rule="zscore")
    state = widget.get_state()
    assert [state[name] for name in (*NAMES, "rule")] == [20, 5, 100, 10, 20, "zscore"]
    assert state["_esm"] == in_a_notebook(MODULE)
    assert VerifierExplorer.words in repr(widget)
    assert "http" not in MODULE.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")


def test_sliders_menu_and_widget_offer_the_same():
    assert list(in_node("console.log(JSON.stringify(maths.rules))")) == VerifierExplorer.rule.values == list(RULES)
    sliders = in_node("console.log(JSON.stringify(maths.sliders))")
    assert tuple(sliders) == NAMES
    for name, slider in sliders.items():
        trait = getattr(VerifierExplorer, name)
        assert (trait.min, trait.max) == (slider["min"], slider["max"])
    assert list(VerifierExplorer().get_state(NAMES).values()) == in_node(
        "console.log(JSON.stringify(maths.examples['a hole']))"
    )


@pytest.mark.parametrize(
    "arguments", [{"honest": 0}, {"exploit": 40}, {"passes": 101}, {"accepts": 61}, {"rejects": -1}, {"rule": "rank"}]
)
def test_the_widget_refuses_what_it_cannot_show(arguments):
    with pytest.raises(traitlets.TraitError):
        VerifierExplorer(**arguments)
