"""The clip explorer by keyboard, without a network, in the dark and on a phone."""

import json

import pytest

from tests.browser.explorers import in_browser, press, stays_in_its_place, unnamed
from tests.viz.test_clip_explorer import MODULE, cases, compare

FIGURE = "document.querySelector('.clip-explorer')"
SHOWN = f"[Number({FIGURE}.dataset.objective), Number({FIGURE}.dataset.weight)]"
SAID = f"{FIGURE}.querySelector('.said').textContent"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1400, 360])
def test_the_keyboard_moves_it(browser, figures, dark, width):
    page = browser.open(figures / "clip_explorer.html", width=width, dark=dark)
    curves = f"[...{FIGURE}.querySelectorAll('.curve')].map((c) => c.getAttribute('points')).join(' ')"
    before, said = page.evaluate(curves), page.evaluate(SAID)
    assert page.evaluate(SHOWN) == [1.2, 0]
    page.evaluate(f"{FIGURE}.querySelector('.high').focus()")
    page.press("ArrowRight", times=40)
    assert page.evaluate(SHOWN) == [1.5, 1.5]
    assert page.evaluate(curves) != before
    assert page.evaluate(SAID) != said
    assert page.evaluate(f"{FIGURE}.querySelector('.high') === document.activeElement"), "focus was lost"
    assert stays_in_its_place(page, FIGURE, width)


def test_its_controls_work_by_keyboard(browser, figures):
    page = browser.open(figures / "clip_explorer.html")

    found = {}
    for name in (
        "rApushed up",
        "0has risen enough",
        "rAfell: pushed back up",
        "0has fallen enough",
        "rArose: pushed back down",
    ):
        press(page, FIGURE, name)
        assert page.evaluate(f"{FIGURE}.querySelector('[aria-pressed=true]').textContent") == name
        found[name] = page.evaluate(SHOWN)
    assert found == {
        "rApushed up": [1, 1],
        "0has risen enough": [1.2, 0],
        "rAfell: pushed back up": [0.4, 0.4],
        "0has fallen enough": [-0.8, 0],
        "rArose: pushed back down": [-1.7, -1.7],
    }
    assert "moved the wrong way" in page.evaluate(SAID)
    page.evaluate(f"{FIGURE}.querySelector('.ratio').focus()")
    page.press("Home")
    assert "It has lost enough" in page.evaluate(SAID)
    page.evaluate(f"{FIGURE}.querySelector('.advantage').focus()")
    page.press("End")
    assert page.evaluate(SHOWN) == pytest.approx([0.015, 0.015])
    page.evaluate(f"{FIGURE}.querySelector('.low').focus()")
    page.press("End")
    assert page.evaluate(f"{FIGURE}.querySelector('.low').getAttribute('aria-valuetext')") == "0.00"
    assert page.errors == []


def test_everything_has_a_name(browser, figures):
    page = browser.open(figures / "clip_explorer.html")
    assert unnamed(page, FIGURE) == 0


def test_its_numbers_are_the_librarys_in_the_browser_too(browser, tmp_path):
    """The comparison of tests/viz, for machines without Node."""
    each = "((c) => [figure.maths.objective(...c), figure.maths.weight(...c)])"
    numbers = f"{json.dumps(list(cases()))}.map({each})"
    compare(in_browser(browser, tmp_path, MODULE, numbers))
