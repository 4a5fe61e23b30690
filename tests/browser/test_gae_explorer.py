"""The GAE explorer on the built pages: by keyboard, without a kernel or a network, in the dark and on a phone."""

import json

import pytest

from tests.browser.explorers import in_browser, opened, stays_in_its_place, unnamed
from tests.browser.test_group_explorer import contrast
from tests.viz.test_gae_explorer import MODULE, SCATTER, cases, compare

# A page of the book, where the module is part of the page; a chapter, where it is a widget with saved state.
PAGES = ["book/figures.html", "notebooks/gae-in-depth.html"]

FIGURE = "document.querySelector('.gae-explorer')"
NUMBERS = f"[...{FIGURE}.querySelectorAll('tbody .number')].map((v) => Number(v.textContent.replace('\\u2212', '-')))"
SAID = f"{FIGURE}.querySelector('.said').textContent"


@pytest.fixture(scope="module", params=PAGES)
def name(request):
    """Module-wide: all tests of one page come together, and it is opened once for each width."""
    return request.param


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 390, 1400])
def test_the_keyboard_moves_it(browser, name, dark, width):
    page = opened(browser, name, FIGURE, width=width, dark=dark)
    before, said = page.evaluate(NUMBERS), page.evaluate(SAID)
    assert len(before) % 2 == 0
    page.evaluate(f"{FIGURE}.querySelector('.lam').focus()")
    page.press("ArrowLeft", times=3)
    assert page.evaluate(NUMBERS) != before
    assert page.evaluate(SAID) != said
    assert page.evaluate(f"{FIGURE}.querySelector('.lam') === document.activeElement"), "focus was lost"
    assert stays_in_its_place(page, FIGURE, width)
    # Nothing of the figure sticks out of it, and no number is cut.
    over = f"{FIGURE}.getBoundingClientRect().right"
    assert page.evaluate(
        f"Math.max(...[...{FIGURE}.querySelectorAll('*')].map((e) => e.getBoundingClientRect().right))"
    ) <= (page.evaluate(over) + 1)
    page.press("ArrowRight", times=3)
    assert (page.evaluate(NUMBERS), page.evaluate(SAID)) == (before, said)  # the way back, for the next test too


def test_its_controls_work_by_keyboard(browser, name):
    page = opened(browser, name, FIGURE)
    page.evaluate(f"{FIGURE}.querySelector('.lam').focus()")
    page.press("End")
    assert "no mistake of the critic can bias it" in page.evaluate(SAID)
    page.press("Home")
    assert "Only the critic's next opinion counts" in page.evaluate(SAID)
    numbers = page.evaluate(NUMBERS)
    assert numbers[::2] == numbers[1::2]  # lambda 0: the advantage is the TD error
    page.evaluate(f"{FIGURE}.querySelector('.size').focus()")
    page.press("Home")
    assert "The critic is right" in page.evaluate(SAID)
    page.press("End")
    page.evaluate(f"{FIGURE}.querySelector('.critic').focus()")
    page.press("End")
    assert "late by one token" in page.evaluate(SAID)
    # Three bad tokens end the response: rows after them empty, and their buttons have nothing to change.
    rows = f"{FIGURE}.querySelectorAll('tbody tr:not(.over)').length"
    for token in (0, 2):
        page.evaluate(f"{FIGURE}.querySelectorAll('.token-button')[{token}].focus()")
        page.press("Space")
    assert page.evaluate(rows) == 3
    assert page.evaluate(f"{FIGURE}.querySelectorAll('.token-button:disabled').length") == 3
    assert page.errors == []


@pytest.mark.parametrize("dark", [False, True])
def test_it_can_be_seen_and_heard(browser, name, dark):
    page = opened(browser, name, FIGURE, dark=dark)
    assert unnamed(page, FIGURE) == 0
    assert len(page.evaluate(f"{FIGURE}.closest('[role=group][aria-label]').ariaLabel")) > 80
    page.evaluate(f"{FIGURE}.querySelector('.lam').focus()")
    page.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    ink = page.evaluate(f"getComputedStyle({FIGURE}.querySelector('.said')).color")
    behind = page.evaluate(
        f"(() => {{ const behind = (e) => getComputedStyle(e).backgroundColor; let e = {FIGURE};"
        " while (behind(e) === 'rgba(0, 0, 0, 0)') e = e.parentElement; return behind(e); })()"
    )
    assert contrast(ink, behind) > 4.5
    for kind in ("up", "down"):
        fill = page.evaluate(f"getComputedStyle({FIGURE}.querySelector('rect.{kind}')).fill")
        assert contrast(fill, behind) > 3


def test_its_numbers_are_the_librarys_in_the_browser_too(browser, tmp_path):
    """The comparison of tests/viz, for machines without Node."""
    script = f"[{json.dumps(list(cases()))}.map((c) => maths.measure(...c)), {SCATTER}]"
    compare(*in_browser(browser, tmp_path, MODULE, f"((maths) => {script})(figure.maths)"))
