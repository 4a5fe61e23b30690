"""The budget explorer by keyboard, without a network, in the dark and on a phone."""

import json

import pytest

from tests.browser.explorers import in_browser, stays_in_its_place, unnamed
from tests.viz.test_budget_explorer import CASES, CURVES, MODULE, compare

FIGURE = "document.querySelector('.budget-explorer')"
BOUGHT = f"[...{FIGURE}.querySelectorAll('tbody td + td')].map((v) => v.textContent)"
SAID = f"{FIGURE}.querySelector('.said').textContent"
LINES = f"{FIGURE}.querySelectorAll('path.line').length"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1400, 390, 360])
def test_the_keyboard_moves_it(browser, figures, dark, width):
    page = browser.open(figures / "budget_explorer.html", width=width, dark=dark)
    before, said = page.evaluate(BOUGHT), page.evaluate(SAID)
    assert len(before) == 14
    page.evaluate(f"{FIGURE}.querySelector('.place').focus()")
    page.press("ArrowRight", times=8)
    assert page.evaluate(BOUGHT) != before
    assert page.evaluate(SAID) != said
    assert page.evaluate(f"{FIGURE}.querySelector('.place') === document.activeElement"), "focus was lost"
    assert stays_in_its_place(page, FIGURE, width)


def test_its_menus_work_by_keyboard(browser, figures):
    page = browser.open(figures / "budget_explorer.html")
    both = page.evaluate(LINES)
    page.evaluate(f"{FIGURE}.querySelector('.shown').focus()")
    page.press("ArrowDown")
    assert 0 < page.evaluate(LINES) < both
    page.evaluate(f"{FIGURE}.querySelector('.set').focus()")
    page.press("End")
    assert "problems with 10 to 14 moves" in page.evaluate(SAID)
    assert page.errors == []


def test_everything_has_a_name(browser, figures):
    page = browser.open(figures / "budget_explorer.html")
    assert unnamed(page, FIGURE) == 0


def test_it_reads_its_table_in_the_browser_too(browser, tmp_path):
    """The comparison of tests/viz, for machines without Node."""
    curves = json.dumps(CURVES)
    expression = f"((curves) => {json.dumps(CASES)}.map((c) => figure.maths.bought(curves, ...c)))({curves})"
    compare(in_browser(browser, tmp_path, MODULE, expression))
