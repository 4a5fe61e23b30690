"""The self-reward explorer by keyboard, without a network, in the dark and on a phone."""

import json

import pytest

from tests.browser.explorers import in_browser, press, stays_in_its_place, unnamed
from tests.viz.test_self_reward_explorer import MODULE, cases, compare

FIGURE = "document.querySelector('.selfreward')"
SAID = f"{FIGURE}.querySelector('.said').textContent"
SHOWN = f"[...{FIGURE}.querySelectorAll('output')].map((v) => v.textContent)"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1400, 360])
def test_the_keyboard_moves_it(browser, figures, dark, width):
    page = browser.open(figures / "self_reward_explorer.html", width=width, dark=dark)
    for name in ("share", "gap", "dose"):
        before, said = page.evaluate(SHOWN), page.evaluate(SAID)
        page.evaluate(f"{FIGURE}.querySelector('.{name}-slider').focus()")
        page.press("ArrowRight", times=3)
        assert page.evaluate(SHOWN) != before
        assert page.evaluate(SAID) != said
        assert page.evaluate(f"{FIGURE}.querySelector('.{name}-slider') === document.activeElement"), "focus was lost"
    said = page.evaluate(SAID)
    page.evaluate(f"{FIGURE}.querySelector('.source-menu').focus()")
    page.press("ArrowDown")
    assert page.evaluate(SAID) != said
    assert page.evaluate(f"{FIGURE}.querySelector('.gap-slider').disabled")
    assert stays_in_its_place(page, FIGURE, width)


def test_its_buttons_work_by_keyboard(browser, figures):
    page = browser.open(figures / "self_reward_explorer.html")
    press(page, FIGURE, "a coin")
    assert "nothing pulls" in page.evaluate(SAID)
    press(page, FIGURE, "majority, behind")
    assert "right completions lose" in page.evaluate(SAID)
    press(page, FIGURE, "a fooled judge")
    assert "Above a dose of 0.23" in page.evaluate(SAID)
    assert page.errors == []


def test_everything_has_a_name(browser, figures):
    page = browser.open(figures / "self_reward_explorer.html")
    assert unnamed(page, FIGURE) == 0


def test_its_numbers_are_expected_gradients_in_the_browser_too(browser, tmp_path):
    """The comparison of tests/viz, for machines without Node."""
    numbers = f"{json.dumps(cases())}.map((c) => figure.maths.compute(...c))"
    compare(in_browser(browser, tmp_path, MODULE, numbers))
