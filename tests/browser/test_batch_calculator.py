"""The batch calculator by keyboard, without a network, in the dark and on a phone."""

import json

import pytest

from tests.browser.explorers import in_browser, press, stays_in_its_place, unnamed
from tests.viz.test_batch_calculator import CASES, MODULE, compare

FIGURE = "document.querySelector('.batch-calculator')"
SAID = f"{FIGURE}.querySelector('.said').textContent"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1400, 360])
def test_the_keyboard_moves_it(browser, figures, dark, width):
    page = browser.open(figures / "batch_calculator.html", width=width, dark=dark)
    for name in ("num_iterations", "processes"):
        said = page.evaluate(SAID)
        field = f"{FIGURE}.querySelector('.field-{name}')"
        page.evaluate(f"{field}.focus()")
        page.press("ArrowUp")
        assert page.evaluate(f"{field}.value") == "2"
        assert page.evaluate(SAID) != said
        assert page.evaluate(f"{field} === document.activeElement"), "focus was lost"
    assert stays_in_its_place(page, FIGURE, width)


def test_another_library_has_other_fields(browser, figures):
    page = browser.open(figures / "batch_calculator.html")
    press(page, FIGURE, "verl")
    assert page.evaluate(f"{FIGURE}.querySelectorAll('input').length") == 6
    assert "128 prompts, 1024 completions" in page.evaluate(SAID)
    press(page, FIGURE, "prime-rl")
    assert page.evaluate(f"{FIGURE}.querySelectorAll('input').length") == 3
    assert "Every update is off-policy" in page.evaluate(SAID)
    assert page.errors == []


def test_everything_has_a_name(browser, figures):
    page = browser.open(figures / "batch_calculator.html")
    assert unnamed(page, FIGURE) == 0


def test_its_numbers_are_pythons_in_the_browser_too(browser, tmp_path):
    """The comparison of tests/viz, for machines without Node."""
    numbers = f"{json.dumps(CASES)}.map((c) => figure.maths.compute(...c))"
    compare(in_browser(browser, tmp_path, MODULE, numbers))
