"""The divergence explorer by keyboard, without a network, in the dark and on a phone."""

import json

import pytest

from tests.browser.explorers import in_browser, press, stays_in_its_place, unnamed
from tests.viz.test_divergence_explorer import CASES, MODULE, TABLE, compare

FIGURE = "document.querySelector('.divergence-explorer')"
SHOWN = f"[...{FIGURE}.querySelectorAll('td.push')].map((v) => v.textContent.replace('\\u2212', '-'))"
SAID = f"{FIGURE}.querySelector('.said').textContent"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1400, 360])
def test_the_keyboard_moves_it(browser, figures, dark, width):
    page = browser.open(figures / "divergence_explorer.html", width=width, dark=dark)
    before, said = page.evaluate(SHOWN), page.evaluate(SAID)
    assert len(before) == len(TABLE["teacher"]) == 12
    page.evaluate(f"{FIGURE}.querySelector('.centre-slider').focus()")
    page.press("ArrowRight", times=8)
    assert page.evaluate(SHOWN) != before
    assert page.evaluate(SAID) != said
    assert page.evaluate(f"{FIGURE}.querySelector('.centre-slider') === document.activeElement"), "focus was lost"
    assert stays_in_its_place(page, FIGURE, width)


def test_its_controls_work_by_keyboard(browser, figures):
    page = browser.open(figures / "divergence_explorer.html")
    press(page, FIGURE, "go to its smallest value")
    assert "Centre 4.4" in page.evaluate(SAID)
    page.evaluate(f"{FIGURE}.querySelector('select').focus()")
    page.press("ArrowDown", times=4)
    press(page, FIGURE, "go to its smallest value")
    best = TABLE["divergences"]["reverse"]["best"]
    assert f"Centre {TABLE['centres'][best]:.1f}" in page.evaluate(SAID)
    assert "No centre has a smaller one" in page.evaluate(SAID)
    wanted = [f"{-x:.3f}".replace("-0.000", "0.000") for x in TABLE["divergences"]["reverse"]["gradient"][best]]
    got = page.evaluate(SHOWN)
    assert [float(x) for x in got] == pytest.approx([float(x) for x in wanted], abs=0.0011)
    assert page.errors == []


def test_everything_has_a_name(browser, figures):
    page = browser.open(figures / "divergence_explorer.html")
    assert unnamed(page, FIGURE) == 0


def test_it_reads_its_table_in_the_browser_too(browser, tmp_path):
    """The comparison of tests/viz, for machines without Node."""
    expression = f"((table) => {json.dumps(CASES)}.map((c) => figure.maths.at(table, ...c)))({json.dumps(TABLE)})"
    compare(in_browser(browser, tmp_path, MODULE, expression))
