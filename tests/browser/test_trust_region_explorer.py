"""The trust region explorer on the built pages: by keyboard, without a kernel or network, in the dark, on a phone."""

import json

import pytest

from tests.browser.explorers import in_browser, opened, stays_in_its_place, unnamed
from tests.browser.test_group_explorer import contrast
from tests.viz.test_trust_region_explorer import MODULE, cases, compare

# A page of the book, where the module is part of the page; a chapter, where it is a widget with saved state.
PAGES = ["book/figures.html", "notebooks/trust-regions.html"]

FIGURE = "document.querySelector('.trust-region-explorer')"
DRAWN = f"[...{FIGURE}.querySelectorAll('polygon')].map((e) => e.getAttribute('points')).join()"
SAID = f"{FIGURE}.querySelector('.said').textContent"


@pytest.fixture(scope="module", params=PAGES)
def name(request):
    """Module-wide: all tests of one page come together, and it is opened once for each width."""
    return request.param


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 390, 1400])
def test_the_keyboard_moves_it(browser, name, dark, width):
    page = opened(browser, name, FIGURE, width=width, dark=dark)
    before, said = page.evaluate(DRAWN), page.evaluate(SAID)
    page.evaluate(f"{FIGURE}.querySelector('.a').focus()")
    page.press("ArrowLeft", times=3)
    assert page.evaluate(DRAWN) != before
    assert page.evaluate(SAID) != said
    assert page.evaluate(f"{FIGURE}.querySelector('.a') === document.activeElement"), "focus was lost"
    assert stays_in_its_place(page, FIGURE, width)
    page.press("ArrowRight", times=3)
    assert (page.evaluate(DRAWN), page.evaluate(SAID)) == (before, said)  # the way back, for the next test too


def test_its_menus_work_by_keyboard(browser, name):
    page = opened(browser, name, FIGURE)
    page.evaluate(f"{FIGURE}.querySelector('.delta').focus()")
    page.press("End")
    assert "At KL 0.05" in page.evaluate(SAID)
    page.press("Home")
    assert "At KL 0.001" in page.evaluate(SAID)
    page.evaluate(f"{FIGURE}.querySelector('.beta').focus()")
    page.press("End")
    assert "\u03b2 = 30" in page.evaluate(SAID)
    drawn = page.evaluate(DRAWN)
    page.evaluate(f"{FIGURE}.querySelector('.eps').focus()")
    page.press("End")
    assert page.evaluate(DRAWN) != drawn
    assert page.errors == []


@pytest.mark.parametrize("dark", [False, True])
def test_it_can_be_seen_and_heard(browser, name, dark):
    page = opened(browser, name, FIGURE, dark=dark)
    assert unnamed(page, FIGURE) == 0
    assert len(page.evaluate(f"{FIGURE}.closest('[role=group][aria-label]').ariaLabel")) > 80
    ink = page.evaluate(f"getComputedStyle({FIGURE}.querySelector('.said')).color")
    behind = page.evaluate(
        f"(() => {{ const behind = (e) => getComputedStyle(e).backgroundColor; let e = {FIGURE};"
        " while (behind(e) === 'rgba(0, 0, 0, 0)') e = e.parentElement; return behind(e); })()"
    )
    assert contrast(ink, behind) > 4.5
    for kind in ("kl", "box"):
        stroke = page.evaluate(f"getComputedStyle({FIGURE}.querySelector('polygon.{kind}')).stroke")
        assert contrast(stroke, behind) > 3


def test_its_numbers_are_right_in_the_browser_too(browser, tmp_path):
    """The comparison of tests/viz, for machines without Node."""
    compare(
        in_browser(
            browser,
            tmp_path,
            MODULE,
            f"((maths) => {json.dumps(cases())}.map((c) => maths.measure(...c)))(figure.maths)",
        )
    )
