"""The pair-loss explorer by keyboard, without a network, in the dark and on a phone."""

import json

import pytest

from tests.viz.test_pair_loss_explorer import MODULE, cases, compare

FIGURE = "document.querySelector('.pair-loss-explorer')"
SHOWN = f"[...{FIGURE}.querySelectorAll('.results tr')].map((r) => r.innerText.replaceAll('\\u2212', '-'))"
SAID = f"{FIGURE}.querySelector('.said').textContent"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1400, 360])
def test_the_keyboard_moves_it(browser, figures, dark, width):
    page = browser.open(figures / "pair_loss_explorer.html", width=width, dark=dark)
    before, said = page.evaluate(SHOWN), page.evaluate(SAID)
    assert len(before) == 4
    page.evaluate(f"{FIGURE}.querySelector('.gap-slider').focus()")
    page.press("ArrowRight", times=3)
    assert page.evaluate(SHOWN) != before
    assert page.evaluate(SAID) != said
    assert page.evaluate(f"{FIGURE}.querySelector('.gap-slider') === document.activeElement"), "focus was lost"
    assert page.errors == []
    assert page.outside_requests == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    over = f"{FIGURE}.getBoundingClientRect().right"
    assert page.evaluate(
        f"Math.max(...[...{FIGURE}.querySelectorAll('*')].map((e) => e.getBoundingClientRect().right))"
    ) <= (page.evaluate(over) + 1)


def test_its_controls_work_by_keyboard(browser, figures):
    page = browser.open(figures / "pair_loss_explorer.html")

    def press(name):
        page.evaluate(f"[...{FIGURE}.querySelectorAll('button')].find((b) => b.textContent === '{name}').focus()")
        page.press("Enter")

    press("far apart")
    assert "IPO narrows it" in page.evaluate(SAID)
    press("one label in four is flipped")
    assert "Bradley-Terry stands still" in page.evaluate(SAID)
    page.evaluate(f"{FIGURE}.querySelector('.wins-slider').focus()")
    page.press("End")
    assert "it never rests" in page.evaluate(SAID)
    assert page.errors == []


def test_everything_has_a_name(browser, figures):
    page = browser.open(figures / "pair_loss_explorer.html")
    unnamed = (
        f"[...{FIGURE}.querySelectorAll('input, button, svg:not([aria-hidden])')].filter((e) => !(e.ariaLabel || "
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
    compare(page.evaluate(f"{json.dumps(list(cases()))}.map((c) => figure.maths.compute(c))"))
