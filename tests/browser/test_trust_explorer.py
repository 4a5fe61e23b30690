"""The trust explorer by keyboard, without a network, in the dark and on a phone."""

import json

import pytest

from tests.browser.explorers import in_browser, press, stays_in_its_place, unnamed
from tests.viz.test_trust_explorer import CASES, MODULE, TABLE, compare, weight

FIGURE = "document.querySelector('.trust-explorer')"
SHOWN = f"[...{FIGURE}.querySelectorAll('.rows .number')].map((v) => v.textContent.replace('\\u2212', '-'))"
VERDICTS = f"[...{FIGURE}.querySelectorAll('.rows .verdict')].map((v) => v.textContent)"
SAID = f"{FIGURE}.querySelector('.said').textContent"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1400, 360])
def test_the_keyboard_moves_it(browser, figures, dark, width):
    page = browser.open(figures / "trust_explorer.html", width=width, dark=dark)
    before, said = page.evaluate(SHOWN), page.evaluate(SAID)
    assert len(before) == len(TABLE["rows"]) == 12
    page.evaluate(f"{FIGURE}.querySelector('.now-slider').focus()")
    page.press("ArrowLeft", times=8)
    assert page.evaluate(SHOWN) != before
    assert page.evaluate(SAID) != said
    assert page.evaluate(f"{FIGURE}.querySelector('.now-slider') === document.activeElement"), "focus was lost"
    assert stays_in_its_place(page, FIGURE, width)


def test_its_controls_work_by_keyboard(browser, figures):
    page = browser.open(figures / "trust_explorer.html")
    press(page, FIGURE, "fresh")
    assert set(page.evaluate(SHOWN)) == {"1.00"}
    press(page, FIGURE, "good, gained")
    clipped = page.evaluate(VERDICTS)
    assert clipped.count("left out") == 6
    page.evaluate(f"{FIGURE}.querySelector('.old').focus()")
    page.press("ArrowDown")
    assert page.evaluate(VERDICTS).count("left out") == 1
    assert "left out by icepop" in page.evaluate(SAID)
    page.evaluate(f"{FIGURE}.querySelector('.sign').focus()")
    page.press("ArrowDown")
    assert page.evaluate(VERDICTS).count("pushed down") == 11
    page.evaluate(f"{FIGURE}.querySelector('.now-slider').focus()")
    page.press("Home")
    found = [f"{weight(row['name'], 0, 3, 'own', -1):.2f}" for row in TABLE["rows"]]
    assert [x.replace("-0.00", "0.00") for x in found] == page.evaluate(SHOWN)
    assert page.errors == []


def test_everything_has_a_name(browser, figures):
    page = browser.open(figures / "trust_explorer.html")
    assert unnamed(page, FIGURE) == 0


def test_it_reads_its_table_in_the_browser_too(browser, tmp_path):
    """The comparison of tests/viz, for machines without Node."""
    expression = f"((table) => {json.dumps(CASES)}.map((c) => figure.maths.weights(table, ...c)))({json.dumps(TABLE)})"
    compare(in_browser(browser, tmp_path, MODULE, expression))
