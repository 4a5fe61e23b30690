"""The target explorer by keyboard, without a network, in the dark and on a phone."""

import json

import pytest

from tests.browser.explorers import in_browser, press, stays_in_its_place, unnamed
from tests.viz.test_target_explorer import MODULE, cases, compare

FIGURE = "document.querySelector('.target-explorer')"
SHOWN = f"[...{FIGURE}.querySelectorAll('.number')].map((v) => v.textContent)"
SAID = f"{FIGURE}.querySelector('.said').textContent"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1400, 390])
def test_the_keyboard_moves_it(browser, figures, dark, width):
    page = browser.open(figures / "target_explorer.html", width=width, dark=dark)
    before, said = page.evaluate(SHOWN), page.evaluate(SAID)
    assert len(before) == 12
    page.evaluate(f"{FIGURE}.querySelectorAll('.reward')[1].focus()")
    page.press("ArrowRight", times=5)
    assert page.evaluate(SHOWN) != before
    assert page.evaluate(SAID) != said
    assert page.evaluate(f"{FIGURE}.querySelectorAll('.reward')[1] === document.activeElement"), "focus was lost"
    assert stays_in_its_place(page, FIGURE, width)


def test_its_controls_work_by_keyboard(browser, figures):
    page = browser.open(figures / "target_explorer.html")

    press(page, FIGURE, "one in ten is right")
    assert "holds the policy back" in page.evaluate(SAID)
    page.evaluate(f"{FIGURE}.querySelector('.tau').focus()")
    page.press("ArrowDown", times=6)
    assert page.evaluate(f"{FIGURE}.querySelector('.tau').value") == "5"
    assert "hardly differ" in page.evaluate(SAID)
    press(page, FIGURE, "all pay alike")
    assert "nothing to fit" in page.evaluate(SAID)
    assert page.errors == []


def test_everything_has_a_name(browser, figures):
    page = browser.open(figures / "target_explorer.html")
    assert unnamed(page, FIGURE) == 0


def test_its_numbers_are_those_of_a_fit_in_the_browser_too(browser, tmp_path):
    """The comparison of tests/viz, for machines without Node."""
    compare(
        in_browser(browser, tmp_path, MODULE, f"{json.dumps(list(cases()))}.map((c) => figure.maths.compute(...c))")
    )
