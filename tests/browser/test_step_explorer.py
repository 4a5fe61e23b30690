"""The step explorer by keyboard, without a network, in the dark and on a phone."""

import json

import pytest

from tests.browser.explorers import in_browser, press, stays_in_its_place, unnamed
from tests.viz.test_step_explorer import MODULE, cases, compare

FIGURE = "document.querySelector('.step-explorer')"
SHOWN = f"[...{FIGURE}.querySelectorAll('.adv')].map((v) => v.textContent.replace('\\u2212', '-'))"
NUMBERS = f"[...{FIGURE}.querySelectorAll('.number')].map((v) => v.textContent)"
SAID = f"{FIGURE}.querySelector('.said').textContent"
KEY = "document.activeElement.dataset.key"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1400, 360])
def test_the_keyboard_moves_it(browser, figures, dark, width):
    page = browser.open(figures / "step_explorer.html", width=width, dark=dark)
    before, said = page.evaluate(NUMBERS), page.evaluate(SAID)
    assert len(before) == 4
    page.evaluate(f"{FIGURE}.querySelectorAll('.score')[1].focus()")
    page.press("Enter")
    assert page.evaluate(NUMBERS) != before
    assert page.evaluate(SAID) != said
    assert page.evaluate(KEY) == "0-1", "focus was lost"
    assert stays_in_its_place(page, FIGURE, width)


def test_its_controls_work_by_keyboard(browser, figures):
    page = browser.open(figures / "step_explorer.html")
    press(page, FIGURE, "easy steps at the end")
    steps = len(page.evaluate(SHOWN))
    press(page, FIGURE, "longer")
    assert len(page.evaluate(SHOWN)) == steps + 1
    press(page, FIGURE, "cut")
    assert len(page.evaluate(SHOWN)) == steps
    page.evaluate(f"{FIGURE}.querySelector('.payment').focus()")
    before = page.evaluate(SHOWN)
    page.press("ArrowDown")
    assert page.evaluate(SHOWN) != before
    assert "sum from here on" in page.evaluate(SAID)
    page.evaluate(f"{FIGURE}.querySelector('.aggregate').focus()")
    page.press("ArrowDown")
    assert "f wins, which is wrong" in page.evaluate(SAID)
    assert page.errors == []


def test_everything_has_a_name(browser, figures):
    page = browser.open(figures / "step_explorer.html")
    assert unnamed(page, FIGURE) == 0


def test_its_numbers_are_the_librarys_in_the_browser_too(browser, tmp_path):
    """The comparison of tests/viz, for machines without Node."""
    compare(
        in_browser(browser, tmp_path, MODULE, f"{json.dumps(list(cases()))}.map((c) => figure.maths.compute(...c))")
    )
