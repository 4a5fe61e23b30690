"""The pair-loss explorer by keyboard, without a network, in the dark and on a phone."""

import json

import pytest

from tests.browser.explorers import in_browser, press, stays_in_its_place, unnamed
from tests.viz.test_pair_loss_explorer import MODULE, cases, compare

FIGURE = "document.querySelector('.pair-loss-explorer')"
SHOWN = f"[...{FIGURE}.querySelectorAll('.results tr')].map((r) => r.innerText.replaceAll('\\u2212', '-'))"
SAID = f"{FIGURE}.querySelector('.said').textContent"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1400, 360])
def test_the_keyboard_moves_it(browser, figures, dark, width):
    page = browser.open(figures / "pair_loss_explorer.html", width=width, dark=dark)
    before, said = page.evaluate(SHOWN), page.evaluate(SAID)
    assert len(before) == 4
    page.evaluate(f"{FIGURE}.querySelector('.gap-slider').focus()")
    page.press("ArrowRight", times=3)
    assert page.evaluate(SHOWN) != before
    assert page.evaluate(SAID) != said
    assert page.evaluate(f"{FIGURE}.querySelector('.gap-slider') === document.activeElement"), "focus was lost"
    assert stays_in_its_place(page, FIGURE, width)


def test_its_controls_work_by_keyboard(browser, figures):
    page = browser.open(figures / "pair_loss_explorer.html")

    press(page, FIGURE, "far apart")
    assert "IPO narrows it" in page.evaluate(SAID)
    press(page, FIGURE, "one label in four is flipped")
    assert "Bradley-Terry stands still" in page.evaluate(SAID)
    page.evaluate(f"{FIGURE}.querySelector('.wins-slider').focus()")
    page.press("End")
    assert "it never rests" in page.evaluate(SAID)
    assert page.errors == []


def test_everything_has_a_name(browser, figures):
    page = browser.open(figures / "pair_loss_explorer.html")
    assert unnamed(page, FIGURE) == 0


def test_its_numbers_are_the_librarys_in_the_browser_too(browser, tmp_path):
    """The comparison of tests/viz, for machines without Node."""
    numbers = f"{json.dumps(list(cases()))}.map((c) => figure.maths.compute(c))"
    compare(in_browser(browser, tmp_path, MODULE, numbers))
