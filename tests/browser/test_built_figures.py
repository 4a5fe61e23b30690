"""Figures on pages of the built book: by keyboard, without a kernel or a network, in the dark and on a phone.

Each stands on the page of all figures, where its module is part of the page, and in a chapter, where it is a widget
with saved state. A page is opened once for each width, and the tests of one page stand together (of two decorators the
upper one changes first): a test that moves a figure there moves it back, or is its last.
"""

import pytest

from rlhf_book.figures.pass_rates import pass_rates
from tests.browser.explorers import (
    button,
    contrast,
    drawn,
    ground,
    has_focus,
    press,
    said,
    stays_in_its_place,
    style,
    texts,
    unnamed,
)

ALL = "book/figures.html"
WIDTHS = (360, 390, 1400)
# Of each figure: its chapter, a control with a key and the key back, how often, what that draws anew, and what has to
# stand out from the page by its colour, as a property of an element.
FIGURES = {
    "gae-explorer": ("gae-in-depth", ".lam", "ArrowLeft", "ArrowRight", 3, "tbody .number", "rect.up rect.down"),
    "group-explorer": (
        "grpo-in-depth",
        ".reward-slider >> nth=1",
        "ArrowRight",
        "ArrowLeft",
        3,
        "tbody .value",
        "rect.up rect.down",
    ),
    "landscape-explorer": ("policy-gradients", ".a", "ArrowLeft", "ArrowRight", 3, "path.arrow", "path.up path.down"),
    "pass-rates": ("soft-gates-in-depth", ".rate", "ArrowRight", "ArrowLeft", 5, ".said", ""),
    "trust-region-explorer": (
        "trust-regions",
        ".a",
        "ArrowLeft",
        "ArrowRight",
        3,
        "polygon",
        "polygon.kl polygon.box",
    ),
}
PLACES = [(page, name) for name, (chapter, *_) in FIGURES.items() for page in (ALL, f"notebooks/{chapter}.html")]
PLACES.sort(key=lambda place: place[0])


def on_both(name):
    return pytest.mark.parametrize("page", [page for page, figure in PLACES if figure == name])


@pytest.fixture
def figure(kept):
    return lambda page, name, **look: kept(page, **look).locator(f".{name}")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize(("page", "name", "width"), [(page, name, width) for width in WIDTHS for page, name in PLACES])
def test_the_keyboard_moves_it(figure, page, name, width, dark):
    shown = figure(page, name, width=width, dark=dark)
    _, selector, key, back, times, what, _ = FIGURES[name]
    control, numbers = shown.locator(selector), shown.locator(what)
    before = drawn(numbers), said(shown)
    press(control, key, times)
    assert drawn(numbers) != before[0]
    assert said(shown) != before[1]
    assert has_focus(control), "focus was lost"
    assert stays_in_its_place(shown, width)
    press(control, back, times)
    assert (drawn(numbers), said(shown)) == before


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize(("page", "name"), PLACES)
def test_it_can_be_seen_and_heard(figure, page, name, dark):
    shown = figure(page, name, dark=dark)
    assert unnamed(shown) == 0
    assert shown.evaluate("(e) => e.closest('[role=group][aria-label]').ariaLabel.length") > (
        60 if name == "pass-rates" else 80
    )
    # A fresh focus by keyboard shows an outline.
    press(shown.locator("button, input, select").first, "Tab")
    assert style(shown.page.locator(":focus"), "outlineStyle") != "none"
    # Text and colours stand out from what lies behind them: WCAG's 4.5 and 3 to 1.
    behind = ground(shown)
    assert contrast(style(shown.locator(".said"), "color"), behind) > 4.5
    for mark in FIGURES[name][-1].split():
        tag, kind = mark.split(".")
        colour = shown.evaluate(
            "(figure, [tag, kind]) => { const e = document.createElementNS('http://www.w3.org/2000/svg', tag);"
            "e.setAttribute('class', kind); figure.querySelector('svg').append(e); const { fill, stroke } ="
            "getComputedStyle(e), seen = tag === 'rect' ? fill : stroke; e.remove(); return seen; }",
            [tag, kind],
        )
        assert contrast(colour, behind) > 3


@on_both("gae-explorer")
def test_controls_of_the_gae(figure, page):
    shown = figure(page, "gae-explorer")
    press(shown.locator(".lam"), "End")
    assert "no mistake of the critic can bias it" in said(shown)
    press(shown.locator(".lam"), "Home")
    assert "Only the critic's next opinion counts" in said(shown)
    numbers = texts(shown.locator("tbody .number"))
    assert numbers[::2] == numbers[1::2] != []  # lambda 0: the advantage is the TD error
    press(shown.locator(".size"), "Home")
    assert "The critic is right" in said(shown)
    press(shown.locator(".size"), "End")
    press(shown.locator(".critic"), "End")
    assert "late by one token" in said(shown)
    # Three bad tokens end the response: rows after them empty, and their buttons have nothing to change.
    for token in (0, 2):
        press(shown.locator(".token-button").nth(token), "Space")
    assert shown.locator("tbody tr:not(.over)").count() == 3
    assert shown.locator(".token-button:disabled").count() == 3


@on_both("group-explorer")
def test_controls_of_the_group(figure, page):
    shown = figure(page, "group-explorer")
    rows, numbers = shown.locator("tbody tr"), shown.locator("tbody .value")
    assert numbers.count() % 3 == 0
    for key, times, count in (("End", 1, 16), ("Home", 1, 2), ("ArrowRight", 2, 4)):
        press(shown.locator(".size"), key, times)
        assert rows.count() == count
    press(button(shown, "all equal"), "Enter")
    assert {float(text) for text in texts(numbers)} == {0}
    assert "teaches nothing" in said(shown)
    press(button(shown, "one right"), "Space")
    assert [float(text) for text in texts(numbers)[:3]] == [1.5, 0.75, 1.0]
    press(shown.locator(".ddof"), "ArrowDown")
    assert [float(text) for text in texts(numbers)[:3]] == [1.73, 0.75, 1.0]


@on_both("landscape-explorer")
def test_menus_of_the_landscape(figure, page):
    shown = figure(page, "landscape-explorer")
    press(shown.locator(".baseline"), "End")
    assert "twice the best constant" in said(shown)
    press(shown.locator(".baseline"), "Home")
    assert "No baseline" in said(shown)
    press(shown.locator(".batch"), "Home")
    assert "from 1 sample has" in said(shown)
    arrows = drawn(shown.locator("path.arrow"))
    press(shown.locator(".again"), "Space")
    assert drawn(shown.locator("path.arrow")) != arrows


@on_both("pass-rates")
def test_menus_of_the_pass_rates(figure, page):
    shown = figure(page, "pass-rates")
    curves = drawn(shown.locator("polyline"))
    press(shown.locator("select.size"), "End")
    assert drawn(shown.locator("polyline")) != curves
    press(shown.locator("select.first"), "End")
    assert said(shown).startswith(f"{pass_rates()['rows'][-1]['name']}: weight")
    press(shown.locator("select.first"), "Home")
    assert "reinforce: weight 1.00, the same as at p = 0.5." in said(shown)


@on_both("trust-region-explorer")
def test_menus_of_the_trust_region(figure, page):
    shown = figure(page, "trust-region-explorer")
    for key, words in (("End", "At KL 0.05"), ("Home", "At KL 0.001")):
        press(shown.locator(".delta"), key)
        assert words in said(shown)
    if page == "notebooks/trust-regions.html":  # there it has two steps of the four
        assert shown.locator(".beta, .eps").count() == 0
        return
    press(shown.locator(".beta"), "End")
    assert "\u03b2 = 30" in said(shown)
    polygons = drawn(shown.locator("polygon"))
    press(shown.locator(".eps"), "End")
    assert drawn(shown.locator("polygon")) != polygons


# ── twenty figures on one page: each looks as it does alone in its chapter ───────────────────────────────────────


@pytest.mark.parametrize("dark", [False, True])
def test_a_figure_is_not_repainted_by_those_behind_it(kept, dark):
    """What all figures share was once written again with each, and won over the style of the figures before."""
    asked = ((".curve", "fill"), (".curve", "strokeWidth"), ("label", "display"))
    seen = []
    for name in ("notebooks/ppo-clip.html", ALL):
        page = kept(name, dark=dark)
        seen.append([[style(e, what) for e in page.locator(f".clip-explorer {part}").all()] for part, what in asked])
    assert page.locator(".live-figure").count() > 15
    assert seen[0] == seen[1]
    assert set(seen[0][0]) == {"none"}


@pytest.mark.parametrize("name", [ALL, "notebooks/ppo-clip.html"])
def test_what_figures_share_stands_once(kept, name):
    shared = (
        "(all) => all.filter((e) => e.textContent.includes('.live-figure button')).map((e) => e.parentElement.tagName)"
    )
    assert kept(name).locator("style").evaluate_all(shared) == ["HEAD"]
