"""The ratio explorer by keyboard, without a network, in the dark and on a phone."""

import json

import pytest

from tests.browser.explorers import in_browser, press, stays_in_its_place, unnamed
from tests.viz.test_ratio_explorer import MODULE, cases, compare

FIGURE = "document.querySelector('.ratio-explorer')"
SHOWN = f"[...{FIGURE}.querySelectorAll('tbody .value')].map((v) => v.textContent.replace('\\u2212', '-'))"
SAID = f"{FIGURE}.querySelector('.said').textContent"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1400, 360])
def test_the_keyboard_moves_it(browser, figures, dark, width):
    page = browser.open(figures / "ratio_explorer.html", width=width, dark=dark)
    before, said = page.evaluate(SHOWN), page.evaluate(SAID)
    assert len(before) == 12
    page.evaluate(f"{FIGURE}.querySelectorAll('.log-ratio')[1].focus()")
    page.press("ArrowRight", times=3)
    assert page.evaluate(SHOWN) != before
    assert page.evaluate(SAID) != said
    assert page.evaluate(f"{FIGURE}.querySelectorAll('.log-ratio')[1] === document.activeElement"), "focus was lost"
    assert stays_in_its_place(page, FIGURE, width)


def test_its_controls_work_by_keyboard(browser, figures):
    page = browser.open(figures / "ratio_explorer.html")

    press(page, FIGURE, "a small jump in 100")
    assert page.evaluate(SHOWN) == ["1.04", "clipped"] + ["1.00", "clipped"] * 5
    assert "all 100 tokens are dropped" in page.evaluate(SAID)
    page.evaluate(f"{FIGURE}.querySelector('.sequence_band').focus()")
    page.press("ArrowUp")
    assert page.evaluate(SHOWN) == ["1.04", "1.00"] + ["1.00", "1.00"] * 5
    press(page, FIGURE, "one jump")
    page.evaluate(f"{FIGURE}.querySelector('.sign').focus()")
    page.press("ArrowDown")
    assert page.evaluate(SHOWN)[:2] == ["-1.35", "-1.05"]
    assert "moved the wrong way" in page.evaluate(SAID)
    assert page.errors == []


def test_everything_has_a_name(browser, figures):
    page = browser.open(figures / "ratio_explorer.html")
    assert unnamed(page, FIGURE) == 0


def test_its_numbers_are_the_librarys_in_the_browser_too(browser, tmp_path):
    """The comparison of tests/viz, for machines without Node."""
    compare(
        in_browser(browser, tmp_path, MODULE, f"{json.dumps(list(cases()))}.map((c) => figure.maths.weights(...c))")
    )
