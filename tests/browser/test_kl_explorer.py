"""The KL explorer by keyboard, without a network, in the dark and on a phone."""

import json

import pytest

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
    assert page.errors == []
    assert page.outside_requests == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    over = f"{FIGURE}.getBoundingClientRect().right"
    assert page.evaluate(
        f"Math.max(...[...{FIGURE}.querySelectorAll('*')].map((e) => e.getBoundingClientRect().right))"
    ) <= (page.evaluate(over) + 1)


def test_its_controls_work_by_keyboard(browser, figures):
    page = browser.open(figures / "kl_explorer.html")

    def press(name):
        page.evaluate(f"[...{FIGURE}.querySelectorAll('button')].find((b) => b.textContent === '{name}').focus()")
        page.press("Enter")

    press("far")
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
    press("near")
    assert page.evaluate(SHOWN)[0] < "0.1"
    assert page.errors == []


def test_everything_has_a_name(browser, figures):
    page = browser.open(figures / "kl_explorer.html")
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
    compare(page.evaluate(f"{json.dumps(list(cases()))}.map((c) => figure.maths.compute(...c))"))
