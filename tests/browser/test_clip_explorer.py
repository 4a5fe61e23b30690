"""The clip explorer by keyboard, without a network, in the dark and on a phone."""

import json

import pytest

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
    assert page.errors == []
    assert page.outside_requests == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    over = f"{FIGURE}.getBoundingClientRect().right"
    assert page.evaluate(
        f"Math.max(...[...{FIGURE}.querySelectorAll('*')].map((e) => e.getBoundingClientRect().right))"
    ) <= (page.evaluate(over) + 1)


def test_its_controls_work_by_keyboard(browser, figures):
    page = browser.open(figures / "clip_explorer.html")

    def press(name):
        page.evaluate(f"[...{FIGURE}.querySelectorAll('button')].find((b) => b.textContent === '{name}').focus()")
        page.press("Enter")

    found = {}
    for name in ("first step", "good, gained", "good, lost", "bad, lost", "bad, gained"):
        press(name)
        found[name] = page.evaluate(SHOWN)
    assert found == {
        "first step": [1, 1],
        "good, gained": [1.2, 0],
        "good, lost": [0.6, 0.6],
        "bad, lost": [-0.8, 0],
        "bad, gained": [-1.5, -1.5],
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
    unnamed = (
        f"[...{FIGURE}.querySelectorAll('input, select, button, svg')].filter((e) => !(e.ariaLabel || "
        "e.textContent.trim() || e.labels?.[0]?.textContent.trim())).length"
    )
    assert page.evaluate(unnamed) == 0


def test_its_numbers_are_the_librarys_in_the_browser_too(browser, tmp_path):
    """The comparison of tests/viz, for machines without Node."""
    source = MODULE.read_text(encoding="utf-8").replace("export default", "window.figure =")
    (tmp_path / "page.html").write_text(
        f'<meta charset="utf-8"><script type="module">{source}</script>', encoding="utf-8"
    )
    page = browser.open(tmp_path / "page.html")
    each = "((c) => [figure.maths.objective(...c), figure.maths.weight(...c)])"
    compare(page.evaluate(f"{json.dumps(list(cases()))}.map({each})"))
