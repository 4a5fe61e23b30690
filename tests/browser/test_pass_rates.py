"""The pass-rate figure on the built pages: by keyboard, without a kernel or a network, in the dark and on a phone."""

import json

import pytest

from rlhf_book.figures.pass_rates import pass_rates
from tests.browser.explorers import in_browser, opened, stays_in_its_place, unnamed
from tests.browser.test_group_explorer import contrast
from tests.viz.test_soft_gates import MODULE, cases, compare

# A page of the book, where the module is part of the page; a chapter, where it is a widget with saved state.
PAGES = ["book/figures.html", "notebooks/soft-gates-in-depth.html"]

FIGURE = "document.querySelector('.pass-rates')"
CURVES = f"[...{FIGURE}.querySelectorAll('polyline')].map((e) => e.getAttribute('points')).join('|')"
SAID = f"{FIGURE}.querySelector('.said').textContent"


@pytest.fixture(scope="module", params=PAGES)
def name(request):
    """Module-wide: all tests of one page come together, and it is opened once for each width."""
    return request.param


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 390, 1400])
def test_the_keyboard_moves_it(browser, name, dark, width):
    page = opened(browser, name, FIGURE, width=width, dark=dark)
    said = page.evaluate(SAID)
    page.evaluate(f"{FIGURE}.querySelector('.rate').focus()")
    page.press("ArrowRight", times=5)
    assert page.evaluate(SAID) != said
    assert page.evaluate(f"{FIGURE}.querySelector('.rate') === document.activeElement"), "focus was lost"
    assert stays_in_its_place(page, FIGURE, width)
    page.press("ArrowLeft", times=5)
    assert page.evaluate(SAID) == said  # the way back, for the next test too


def test_its_menus_work_by_keyboard(browser, name):
    page = opened(browser, name, FIGURE)
    before = page.evaluate(CURVES)
    page.evaluate(f"{FIGURE}.querySelector('select.size').focus()")
    page.press("End")
    assert page.evaluate(CURVES) != before
    page.evaluate(f"{FIGURE}.querySelector('select.first').focus()")
    page.press("End")
    last = pass_rates()["rows"][-1]["name"]
    assert page.evaluate(SAID).startswith(f"{last}: weight")
    page.press("Home")
    assert "reinforce: weight 1.00, the same as at p = 0.5." in page.evaluate(SAID)
    assert page.errors == []


@pytest.mark.parametrize("dark", [False, True])
def test_it_can_be_seen_and_heard(browser, name, dark):
    page = opened(browser, name, FIGURE, dark=dark)
    assert unnamed(page, FIGURE) == 0
    assert len(page.evaluate(f"{FIGURE}.closest('[role=group][aria-label]').ariaLabel")) > 60
    ink = page.evaluate(f"getComputedStyle({FIGURE}.querySelector('.said')).color")
    behind = page.evaluate(
        f"(() => {{ const behind = (e) => getComputedStyle(e).backgroundColor; let e = {FIGURE};"
        " while (behind(e) === 'rgba(0, 0, 0, 0)') e = e.parentElement; return behind(e); })()"
    )
    assert contrast(ink, behind) > 4.5


def test_its_numbers_are_the_library_s_in_the_browser_too(browser, tmp_path):
    """The comparison of tests/viz, for machines without Node."""
    table, asked = json.dumps(pass_rates()), json.dumps(cases())
    look_up = "weight(table, table.rows.find((row) => row.name === name), G, p)"
    expression = f"((table) => {asked}.map(([name, G, p]) => figure.maths.{look_up}))({table})"
    compare(in_browser(browser, tmp_path, MODULE, expression))
