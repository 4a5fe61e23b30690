"""The KL explorer by keyboard, without a network, in the dark and on a phone."""

import json

import pytest

from tests.browser.explorers import in_browser, press, stays_in_its_place, unnamed
from tests.viz.test_kl_explorer import MODULE, cases, compare

FIGURE = "document.querySelector('.kl-explorer')"
SHOWN = f"[...{FIGURE}.querySelectorAll('.results .mean')].map((v) => v.textContent.replace('\\u2212', '-'))"
BARS = f"[...{FIGURE}.querySelectorAll('.results svg')].map((v) => v.ariaLabel.replaceAll('\\u2212', '-'))"
SAID = f"{FIGURE}.querySelector('.said').textContent"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1400, 360])
def test_the_keyboard_moves_it(browser, figures, dark, width):
    page = browser.open(figures / "kl_explorer.html", width=width, dark=dark)
    before, said = page.evaluate(SHOWN), page.evaluate(SAID)
    assert len(before) == 5
    page.evaluate(f"{FIGURE}.querySelectorAll('.policy-slider')[1].focus()")
    page.press("ArrowRight", times=3)
    assert page.evaluate(SHOWN) != before
    assert page.evaluate(SAID) != said
    assert page.evaluate(f"{FIGURE}.querySelectorAll('.policy-slider')[1] === document.activeElement"), "focus was lost"
    assert stays_in_its_place(page, FIGURE, width)


def test_its_controls_work_by_keyboard(browser, figures):
    page = browser.open(figures / "kl_explorer.html")

    press(page, FIGURE, "far")
    exact, k1, k2, k3, _ = page.evaluate(BARS)
    assert k1 == "k1: A 0.000, B 0.000, C 0.000"
    assert k2.partition(": ")[2] == exact.partition(": ")[2] != k3.partition(": ")[2]
    page.evaluate(f"{FIGURE}.querySelector('.place').focus()")
    page.press("ArrowDown")
    exact, k1, k2, k3, _ = (text.partition(": ")[2] for text in page.evaluate(BARS))
    assert k1 == exact
    assert len({exact, k2, k3}) == 3
    page.press("ArrowDown")
    exact, k1, k2, k3, _ = (text.partition(": ")[2] for text in page.evaluate(BARS))
    assert k1 == k3 == exact != k2
    press(page, FIGURE, "near")
    assert page.evaluate(SHOWN)[0] < "0.1"
    assert page.errors == []


def test_everything_has_a_name(browser, figures):
    page = browser.open(figures / "kl_explorer.html")
    assert unnamed(page, FIGURE) == 0


def test_its_numbers_are_the_librarys_in_the_browser_too(browser, tmp_path):
    """The comparison of tests/viz, for machines without Node."""
    compare(
        in_browser(browser, tmp_path, MODULE, f"{json.dumps(list(cases()))}.map((c) => figure.maths.compute(...c))")
    )
