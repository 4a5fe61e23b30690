"""The routing explorer by keyboard, without a network, in the dark and on a phone."""

import pytest

from tests.browser.explorers import stays_in_its_place, unnamed

FIGURE = "document.querySelector('.routing')"
SAID = f"{FIGURE}.querySelector('.said').textContent"
BARS = f"[...{FIGURE}.querySelectorAll('rect')].map((e) => e.getAttribute('width')).join()"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1400, 360])
def test_the_keyboard_moves_it(browser, figures, dark, width):
    page = browser.open(figures / "routing_explorer.html", width=width, dark=dark)
    for name, key in (("noise-slider", "ArrowRight"), ("layers-menu", "ArrowDown"), ("picked-menu", "ArrowDown")):
        before, said = page.evaluate(BARS), page.evaluate(SAID)
        page.evaluate(f"{FIGURE}.querySelector('.{name}').focus()")
        page.press(key)
        assert page.evaluate(BARS) != before
        assert page.evaluate(SAID) != said
        assert page.evaluate(f"{FIGURE}.querySelector('.{name}') === document.activeElement"), "focus was lost"
    assert stays_in_its_place(page, FIGURE, width)


def test_everything_has_a_name(browser, figures):
    page = browser.open(figures / "routing_explorer.html")
    assert unnamed(page, FIGURE) == 0
