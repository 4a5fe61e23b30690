"""Explorers by keyboard, each on a page of its own: without a network, in the dark and on a phone.

After every test the fixture `opened` asks whether the page had an error or asked for a network.
"""

import json
from importlib import import_module

import pytest

from rlhf_book.figures.pass_rates import pass_rates
from tests.browser.chromium import prefer
from tests.browser.explorers import (
    button,
    drawn,
    has_focus,
    in_browser,
    press,
    said,
    stays_in_its_place,
    texts,
    unnamed,
)
from tests.viz.test_divergence_explorer import TABLE as DIVERGENCES
from tests.viz.test_gae_explorer import SCATTER
from tests.viz.test_row_benchmark import expression as of_rows
from tests.viz.test_token_inspector import expression as of_tokens
from tests.viz.test_trust_explorer import TABLE as TRUST
from tests.viz.test_trust_explorer import weight
from tests.viz.test_turn_weights import NUMBERS

# Of each explorer: widths, what is drawn and how often, and which keys of which controls change that and what is said.
MOVES = {
    "budget_explorer": ((1400, 390, 360), "tbody td + td", 14, [(".place", "ArrowRight", 8)]),
    "clip_explorer": ((1400, 360), ".curve", None, [(".high", "ArrowRight", 40)]),
    "divergence_explorer": ((1400, 360), "td.push", 12, [(".centre-slider", "ArrowRight", 8)]),
    "headroom_explorer": (
        (1400, 360),
        "output",
        None,
        [(f".{name}-slider", "ArrowRight", 3) for name in ("p", "low", "high")],
    ),
    "kl_explorer": ((1400, 360), ".results .mean", 5, [(".policy-slider >> nth=1", "ArrowRight", 3)]),
    "length_explorer": ((1400, 360), "tbody .value", 12, [(".length-slider >> nth=1", "ArrowRight", 3)]),
    "pair_loss_explorer": ((1400, 360), ".results tr", 4, [(".gap-slider", "ArrowRight", 3)]),
    "ratio_explorer": ((1400, 360), "tbody .value", 12, [(".log-ratio >> nth=1", "ArrowRight", 3)]),
    "routing_explorer": (
        (1400, 360),
        "rect",
        None,
        [(".noise-slider", "ArrowRight", 1), (".layers-menu", "ArrowDown", 1), (".picked-menu", "ArrowDown", 1)],
    ),
    "self_reward_explorer": (
        (1400, 360),
        "output",
        None,
        [(f".{name}-slider", "ArrowRight", 3) for name in ("share", "gap", "dose")],
    ),
    "step_explorer": ((1400, 360), ".number", 4, [(".score[data-key='0-1']", "Enter", 1)]),
    "target_explorer": ((1400, 390), ".number", 12, [(".reward >> nth=1", "ArrowRight", 5)]),
    "trust_explorer": ((1400, 360), ".rows .number", 12, [(".now-slider", "ArrowLeft", 8)]),
    "verifier_explorer": ((1400, 390, 360), ".number", 12, [(".passes", "ArrowLeft", 30)]),
}
BACK = {"ArrowRight": "ArrowLeft", "ArrowLeft": "ArrowRight", "ArrowDown": "ArrowUp", "Enter": "Enter"}
# Of each module: the test beside Node that has cases for it, and what is computed of them.
EACH = "given.map((c) => maths.{}(...c))"
NUMBERS_OF = {
    "batch_calculator": EACH.format("compute"),
    "budget_explorer": "given.cases.map((c) => maths.bought(given.table, ...c))",
    "clip_explorer": "given.map((c) => [maths.objective(...c), maths.weight(...c)])",
    "divergence_explorer": "given.cases.map((c) => maths.at(given.table, ...c))",
    "gae_explorer": f"[given.map((c) => maths.measure(...c)), {SCATTER}]",
    "group_explorer": EACH.format("advantages"),
    "headroom_explorer": EACH.format("compute"),
    "kl_explorer": EACH.format("compute"),
    "landscape_explorer": EACH.format("measure"),
    "length_explorer": EACH.format("weights"),
    "pair_loss_explorer": "given.map((c) => maths.compute(c))",
    "ratio_explorer": EACH.format("weights"),
    "row_benchmark": of_rows(),
    "self_reward_explorer": EACH.format("compute"),
    "soft_gates": "given.cases.map(([name, G, p]) => "
    "maths.weight(given.table, given.table.rows.find((row) => row.name === name), G, p))",
    "step_explorer": EACH.format("compute"),
    "target_explorer": EACH.format("compute"),
    "token_inspector": of_tokens(),
    "trust_explorer": "given.cases.map((c) => maths.weights(given.table, ...c))",
    "trust_region_explorer": EACH.format("measure"),
    "turn_weights": f"given.map({NUMBERS})",
    "verifier_explorer": EACH.format("push"),
}


@pytest.mark.parametrize("name", NUMBERS_OF)
def test_its_numbers_are_the_librarys_in_the_browser_too(opened, name):
    """The comparison of tests/viz, for machines without Node."""
    viz = import_module(f"tests.viz.test_{name}")
    given = next((getattr(viz, of) for of in ("STATES", "CASES", "cases") if hasattr(viz, of)), None)
    given = list(given()) if callable(given) else given
    if "given.table" in NUMBERS_OF[name]:
        table = {"budget_explorer": "CURVES", "soft_gates": None}.get(name, "TABLE")
        given = {"cases": given, "table": getattr(viz, table) if table else pass_rates()}
    found = in_browser(opened("about:blank"), viz.MODULE, NUMBERS_OF[name], json.loads(json.dumps(given)))
    if name == "gae_explorer":
        viz.compare(*found)
    else:
        getattr(viz, "compare_numbers", getattr(viz, "compare", None))(found)


@pytest.mark.parametrize(("name", "width"), [(name, width) for name in MOVES for width in MOVES[name][0]])
def test_the_keyboard_moves_it(figure, name, width):
    """There and back, by day and by night: a phone opens it by night, a desk by day, and then the light changes."""
    _, numbers, count, moves = MOVES[name]
    dark = width < 600
    shown = figure(name, width=width, dark=dark)
    assert count in (None, len(drawn(shown.locator(numbers))))
    assert unnamed(shown) == 0
    for back in (False, True):
        for selector, key, times in moves:
            control = shown.locator(selector)
            before = drawn(shown.locator(numbers)), said(shown)
            press(control, BACK[key] if back else key, times)
            assert drawn(shown.locator(numbers)) != before[0]
            assert said(shown) != before[1]
            assert has_focus(control), "focus was lost"
        assert stays_in_its_place(shown, width)
        now = drawn(shown.locator(numbers)), said(shown)
        prefer(shown.page, dark=not dark)
        assert (drawn(shown.locator(numbers)), said(shown)) == now
        assert stays_in_its_place(shown, width)


def test_everything_has_a_name(figure):
    """Asked of the others above."""
    assert unnamed(figure("batch_calculator")) == 0


# ── the controls of each ─────────────────────────────────────────────────────────────────────────────────────────


def test_menus_of_the_budget(figure):
    shown = figure("budget_explorer")
    both = shown.locator("path.line").count()
    press(shown.locator(".shown"), "ArrowDown")
    assert 0 < shown.locator("path.line").count() < both
    press(shown.locator(".set"), "End")
    assert "problems with 10 to 14 moves" in said(shown)


def test_controls_of_the_clip(figure):
    shown = figure("clip_explorer")

    def numbers():
        return [float(shown.get_attribute(f"data-{name}")) for name in ("objective", "weight")]

    assert numbers() == [1.2, 0]
    press(shown.locator(".high"), "ArrowRight", 40)
    assert numbers() == [1.5, 1.5]
    press(shown.locator(".high"), "ArrowLeft", 40)
    places = {
        "rApushed up": [1, 1],
        "0has risen enough": [1.2, 0],
        "rAfell: pushed back up": [0.4, 0.4],
        "0has fallen enough": [-0.8, 0],
        "rArose: pushed back down": [-1.7, -1.7],
    }
    for name, expected in places.items():
        press(button(shown, name), "Enter")
        assert texts(shown.locator("[aria-pressed=true]"))[0] == name
        assert numbers() == expected
    assert "moved the wrong way" in said(shown)
    press(shown.locator(".ratio"), "Home")
    assert "It has lost enough" in said(shown)
    press(shown.locator(".advantage"), "End")
    assert numbers() == pytest.approx([0.015, 0.015])
    press(shown.locator(".low"), "End")
    assert shown.locator(".low").get_attribute("aria-valuetext") == "0.00"


def test_controls_of_the_divergences(figure):
    shown = figure("divergence_explorer")
    press(button(shown, "go to its smallest value"), "Enter")
    assert "Centre 4.4" in said(shown)
    press(shown.locator("select"), "ArrowDown", 4)
    press(button(shown, "go to its smallest value"), "Enter")
    best = DIVERGENCES["divergences"]["reverse"]["best"]
    assert f"Centre {DIVERGENCES['centres'][best]:.1f}" in said(shown)
    assert "No centre has a smaller one" in said(shown)
    wanted = [f"{-x:.3f}".replace("-0.000", "0.000") for x in DIVERGENCES["divergences"]["reverse"]["gradient"][best]]
    got = texts(shown.locator("td.push"))
    assert len(got) == len(DIVERGENCES["teacher"]) == 12
    assert [float(x) for x in got] == pytest.approx([float(x) for x in wanted], abs=0.0011)


def test_buttons_of_the_head_room(figure):
    shown = figure("headroom_explorer")
    press(button(shown, "DAPO, sure token"), "Enter")
    assert "cannot be reached" in said(shown)
    press(button(shown, "PPO, rare token"), "Enter")
    assert "more room down than up" in said(shown)
    press(button(shown, "DAPO, rare token"), "Enter")
    assert "until 0.0128" in said(shown)


def test_controls_of_the_kl(figure):
    shown = figure("kl_explorer")
    bars = shown.locator(".results svg")

    def numbers():
        """Of the exact gradient, of k1, k2 and k3."""
        labels = bars.evaluate_all("(all) => all.map((e) => e.ariaLabel.replaceAll('\\u2212', '-'))")
        return [label.partition(": ") for label in labels][:4]

    press(button(shown, "far"), "Enter")
    exact, k1, k2, k3 = numbers()
    assert "".join(k1) == "k1: A 0.000, B 0.000, C 0.000"
    assert k2[2] == exact[2] != k3[2]
    press(shown.locator(".place"), "ArrowDown")
    exact, k1, k2, k3 = (text for _, _, text in numbers())
    assert k1 == exact
    assert len({exact, k2, k3}) == 3
    press(shown.locator(".place"), "ArrowDown")
    exact, k1, k2, k3 = (text for _, _, text in numbers())
    assert k1 == k3 == exact != k2
    press(button(shown, "near"), "Enter")
    assert texts(shown.locator(".results .mean"))[0] < "0.1"


def test_controls_of_the_lengths(figure):
    shown = figure("length_explorer")
    numbers = shown.locator("tbody .value")
    press(button(shown, "one long, wrong"), "Enter")
    assert texts(numbers)[4:6] == ["-2.8", "-56"]
    assert texts(numbers)[10:] == ["-0.069", "-56"]
    assert "40 times less" in said(shown)
    for control, key, expected in (
        (".divisor", "ArrowDown", ["-0.37", "-296"]),
        (".divisor", "ArrowDown", ["-0.056", "-44"]),
        (".budget", "ArrowDown", ["-0.028", "-22"]),
        (".is-right >> nth=5", "Space", ["0.042", "33"]),
        (".std", "ArrowDown", ["0.076", "61"]),
    ):
        press(shown.locator(control), key)
        assert texts(numbers)[10:] == expected


def test_controls_of_the_pair_losses(figure):
    shown = figure("pair_loss_explorer")
    press(button(shown, "far apart"), "Enter")
    assert "IPO narrows it" in said(shown)
    press(button(shown, "one label in four is flipped"), "Enter")
    assert "Bradley-Terry stands still" in said(shown)
    press(shown.locator(".wins-slider"), "End")
    assert "it never rests" in said(shown)


def test_controls_of_the_ratios(figure):
    shown = figure("ratio_explorer")
    numbers = shown.locator("tbody .value")
    press(button(shown, "a small jump in 100"), "Enter")
    assert texts(numbers) == ["1.04", "clipped"] + ["1.00", "clipped"] * 5
    assert "all 100 tokens are dropped" in said(shown)
    press(shown.locator(".sequence_band"), "ArrowUp")
    assert texts(numbers) == ["1.04", "1.00"] + ["1.00", "1.00"] * 5
    press(button(shown, "one jump"), "Enter")
    press(shown.locator(".sign"), "ArrowDown")
    assert texts(numbers)[:2] == ["-1.35", "-1.05"]
    assert "moved the wrong way" in said(shown)


def test_controls_of_the_rewards_of_ones_own(figure):
    shown = figure("self_reward_explorer")
    before = said(shown)
    press(shown.locator(".source-menu"), "ArrowDown")
    assert said(shown) != before
    assert shown.locator(".gap-slider").is_disabled()
    press(button(shown, "a coin"), "Enter")
    assert "nothing pulls" in said(shown)
    press(button(shown, "majority, behind"), "Enter")
    assert "right completions lose" in said(shown)
    press(button(shown, "a fooled judge"), "Enter")
    assert "Above a dose of 0.23" in said(shown)


def test_controls_of_the_steps(figure):
    shown = figure("step_explorer")
    numbers = shown.locator(".adv")
    press(button(shown, "easy steps at the end"), "Enter")
    steps = numbers.count()
    press(button(shown, "longer"), "Enter")
    assert numbers.count() == steps + 1
    press(button(shown, "cut"), "Enter")
    assert numbers.count() == steps
    before = texts(numbers)
    press(shown.locator(".payment"), "ArrowDown")
    assert texts(numbers) != before
    assert "sum from here on" in said(shown)
    press(shown.locator(".aggregate"), "ArrowDown")
    assert "f wins, which is wrong" in said(shown)


def test_controls_of_the_targets(figure):
    shown = figure("target_explorer")
    press(button(shown, "one in ten is right"), "Enter")
    assert "holds the policy back" in said(shown)
    press(shown.locator(".tau"), "ArrowDown", 6)
    assert shown.locator(".tau").input_value() == "5"
    assert "hardly differ" in said(shown)
    press(button(shown, "all pay alike"), "Enter")
    assert "nothing to fit" in said(shown)


def test_controls_of_the_trust(figure):
    shown = figure("trust_explorer")
    numbers, verdicts = shown.locator(".rows .number"), shown.locator(".rows .verdict")
    press(button(shown, "fresh"), "Enter")
    assert set(texts(numbers)) == {"1.00"}
    press(button(shown, "good, gained"), "Enter")
    assert texts(verdicts).count("left out") == 6
    press(shown.locator(".old"), "ArrowDown")
    assert texts(verdicts).count("left out") == 1
    assert "left out by icepop" in said(shown)
    press(shown.locator(".sign"), "ArrowDown")
    assert texts(verdicts).count("pushed down") == 11
    press(shown.locator(".now-slider"), "Home")
    found = [f"{weight(row['name'], 0, 3, 'own', -1):.2f}" for row in TRUST["rows"]]
    assert [x.replace("-0.00", "0.00") for x in found] == texts(numbers)


def test_controls_of_the_verifier(figure):
    shown = figure("verifier_explorer")
    press(button(shown, "a hole"), "Enter")
    assert "it learns the hole" in said(shown)
    press(button(shown, "mended"), "Enter")
    assert "it learns the hole" not in said(shown)
    before = texts(shown.locator(".number"))
    press(shown.locator(".rule"), "ArrowDown")
    assert shown.locator(".rule").input_value() == "zscore"
    assert texts(shown.locator(".number")) != before
