"""The verifier explorer by keyboard, without a network, in the dark and on a phone."""

import json

import pytest

from tests.browser.explorers import in_browser, press, stays_in_its_place, unnamed
from tests.viz.test_verifier_explorer import MODULE, cases, compare

FIGURE = "document.querySelector('.verifier-explorer')"
SHOWN = f"[...{FIGURE}.querySelectorAll('.number')].map((v) => v.textContent)"
SAID = f"{FIGURE}.querySelector('.said').textContent"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1400, 390, 360])
def test_the_keyboard_moves_it(browser, figures, dark, width):
    page = browser.open(figures / "verifier_explorer.html", width=width, dark=dark)
    before, said = page.evaluate(SHOWN), page.evaluate(SAID)
    assert len(before) == 12
    page.evaluate(f"{FIGURE}.querySelector('.passes').focus()")
    page.press("ArrowLeft", times=30)
    assert page.evaluate(SHOWN) != before
    assert page.evaluate(SAID) != said
    assert page.evaluate(f"{FIGURE}.querySelector('.passes') === document.activeElement"), "focus was lost"
    assert stays_in_its_place(page, FIGURE, width)


def test_its_controls_work_by_keyboard(browser, figures):
    page = browser.open(figures / "verifier_explorer.html")
    press(page, FIGURE, "a hole")
    assert "it learns the hole" in page.evaluate(SAID)
    press(page, FIGURE, "mended")
    assert "it learns the hole" not in page.evaluate(SAID)
    before = page.evaluate(SHOWN)
    page.evaluate(f"{FIGURE}.querySelector('.rule').focus()")
    page.press("ArrowDown")
    assert page.evaluate(f"{FIGURE}.querySelector('.rule').value") == "zscore"
    assert page.evaluate(SHOWN) != before
    assert page.errors == []


def test_everything_has_a_name(browser, figures):
    page = browser.open(figures / "verifier_explorer.html")
    assert unnamed(page, FIGURE) == 0


def test_its_pushes_are_expected_steps_in_the_browser_too(browser, tmp_path):
    """The comparison of tests/viz, for machines without Node."""
    compare(in_browser(browser, tmp_path, MODULE, f"{json.dumps(list(cases()))}.map((c) => figure.maths.push(...c))"))
