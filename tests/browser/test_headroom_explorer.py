"""The head-room explorer by keyboard, without a network, in the dark and on a phone."""

import json

import pytest

from tests.viz.test_headroom_explorer import MODULE, cases, compare

FIGURE = "document.querySelector('.headroom')"
SAID = f"{FIGURE}.querySelector('.said').textContent"
SHOWN = f"[...{FIGURE}.querySelectorAll('output')].map((v) => v.textContent)"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1400, 360])
def test_the_keyboard_moves_it(browser, figures, dark, width):
    page = browser.open(figures / "headroom_explorer.html", width=width, dark=dark)
    for name in ("p", "low", "high"):
        before, said = page.evaluate(SHOWN), page.evaluate(SAID)
        page.evaluate(f"{FIGURE}.querySelector('.{name}-slider').focus()")
        page.press("ArrowRight", times=3)
        assert page.evaluate(SHOWN) != before
        assert page.evaluate(SAID) != said
        assert page.evaluate(f"{FIGURE}.querySelector('.{name}-slider') === document.activeElement"), "focus was lost"
    assert page.errors == []
    assert page.outside_requests == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_its_buttons_work_by_keyboard(browser, figures):
    page = browser.open(figures / "headroom_explorer.html")

    def press(name):
        page.evaluate(f"[...{FIGURE}.querySelectorAll('button')].find((b) => b.textContent === '{name}').focus()")
        page.press("Enter")

    press("DAPO, sure token")
    assert "cannot be reached" in page.evaluate(SAID)
    press("PPO, rare token")
    assert "more room down than up" in page.evaluate(SAID)
    press("DAPO, rare token")
    assert "until 0.0128" in page.evaluate(SAID)
    assert page.errors == []


def test_everything_has_a_name(browser, figures):
    page = browser.open(figures / "headroom_explorer.html")
    unnamed = (
        f"[...{FIGURE}.querySelectorAll('input, button, svg')].filter((e) => !(e.ariaLabel || "
        "e.textContent.trim() || e.labels?.[0]?.textContent.trim())).length"
    )
    assert page.evaluate(unnamed) == 0


def test_its_numbers_are_where_the_gradient_ends_in_the_browser_too(browser, tmp_path):
    """The comparison of tests/viz, for machines without Node."""
    source = MODULE.read_text(encoding="utf-8").replace("export default", "window.figure =")
    (tmp_path / "page.html").write_text(
        f'<meta charset="utf-8"><script type="module">{source}</script>', encoding="utf-8"
    )
    page = browser.open(tmp_path / "page.html")
    compare(page.evaluate(f"{json.dumps(cases())}.map((c) => figure.maths.compute(...c))"))
