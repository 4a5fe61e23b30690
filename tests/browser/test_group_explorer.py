"""The group explorer on the built pages: by keyboard, without a kernel or a network, in the dark and on a phone."""

import json
import re

import pytest

from tests.browser.explorers import in_browser, opened, stays_in_its_place, unnamed
from tests.viz.test_group_explorer import MODULE, cases, compare

# A page of the book, where the module is part of the page; a chapter, where it is a widget with saved state.
PAGES = ["book/figures.html", "notebooks/grpo-in-depth.html"]

FIGURE = "document.querySelector('.group-explorer')"
BARS = f"[...{FIGURE}.querySelectorAll('tbody .value')].map((v) => Number(v.textContent.replace('\\u2212', '-')))"
SAID = f"{FIGURE}.querySelector('.said').textContent"


@pytest.fixture(scope="module", params=PAGES)
def name(request):
    """Module-wide: all tests of one page come together, and it is opened once for each width."""
    return request.param


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1400])
def test_the_keyboard_moves_it(browser, name, dark, width):
    page = opened(browser, name, FIGURE, width=width, dark=dark)
    before, said = page.evaluate(BARS), page.evaluate(SAID)
    assert len(before) % 3 == 0
    page.evaluate(f"{FIGURE}.querySelectorAll('.reward-slider')[1].focus()")
    page.press("ArrowRight", times=3)
    after = page.evaluate(BARS)
    assert after != before
    assert page.evaluate(SAID) != said
    assert page.evaluate(f"{FIGURE}.querySelectorAll('.reward-slider')[1] === document.activeElement"), "focus was lost"
    assert stays_in_its_place(page, FIGURE, width)
    # Nothing of the figure sticks out of it, and no number is cut.
    over = f"{FIGURE}.getBoundingClientRect().right"
    assert page.evaluate(
        f"Math.max(...[...{FIGURE}.querySelectorAll('*')].map((e) => e.getBoundingClientRect().right))"
    ) <= (page.evaluate(over) + 1)
    page.press("ArrowLeft", times=3)
    assert (page.evaluate(BARS), page.evaluate(SAID)) == (before, said)  # the way back, for the next test too


def test_its_controls_work_by_keyboard(browser, name):
    page = opened(browser, name, FIGURE)
    rows = f"{FIGURE}.querySelectorAll('tbody tr').length"
    page.evaluate(f"{FIGURE}.querySelector('.size').focus()")
    page.press("End")
    assert page.evaluate(rows) == 16
    page.press("Home")
    assert page.evaluate(rows) == 2
    page.press("ArrowRight", times=2)
    assert page.evaluate(rows) == 4
    page.evaluate(f"[...{FIGURE}.querySelectorAll('button')].find((b) => b.textContent === 'all equal').focus()")
    page.press("Enter")
    assert set(page.evaluate(BARS)) == {0}
    assert "teaches nothing" in page.evaluate(SAID)
    page.evaluate(f"[...{FIGURE}.querySelectorAll('button')].find((b) => b.textContent === 'one right').focus()")
    page.press("Space")
    sample = page.evaluate(BARS)
    assert sample[:3] == [1.5, 0.75, 1.0]
    page.evaluate(f"{FIGURE}.querySelector('.ddof').focus()")
    page.press("ArrowDown")
    assert page.evaluate(BARS)[:3] == [1.73, 0.75, 1.0]
    assert page.errors == []


@pytest.mark.parametrize("dark", [False, True])
def test_it_can_be_seen_and_heard(browser, name, dark):
    page = opened(browser, name, FIGURE, dark=dark)
    assert unnamed(page, FIGURE) == 0
    assert len(page.evaluate(f"{FIGURE}.closest('[role=group][aria-label]').ariaLabel")) > 80
    # A fresh focus by keyboard shows an outline.
    page.evaluate(f"{FIGURE}.querySelector('button').focus()")
    page.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    # Text stands out from what lies behind it: WCAG's 4.5 to 1.
    ink = page.evaluate(f"getComputedStyle({FIGURE}.querySelector('.said')).color")
    behind = page.evaluate(
        f"(() => {{ const behind = (e) => getComputedStyle(e).backgroundColor; let e = {FIGURE};"
        " while (behind(e) === 'rgba(0, 0, 0, 0)') e = e.parentElement; return behind(e); })()"
    )
    assert contrast(ink, behind) > 4.5
    for kind in ("up", "down"):
        fill = page.evaluate(f"getComputedStyle({FIGURE}.querySelector('rect.{kind}')).fill")
        assert contrast(fill, behind) > 3


def luminance(colour):
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_its_numbers_are_the_librarys_in_the_browser_too(browser, tmp_path):
    """The comparison of tests/viz, for machines without Node."""
    compare(
        in_browser(browser, tmp_path, MODULE, f"{json.dumps(list(cases()))}.map((c) => figure.maths.advantages(...c))")
    )
