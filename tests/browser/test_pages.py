"""Each built page, opened from disk in a real browser with the network cut off."""

from pathlib import Path

import pytest

BUILT = Path(__file__).resolve().parents[2] / "_build" / "html"
PAGES = sorted(page for page in BUILT.rglob("*.html") if "_static" not in page.parts)
NAMES = [str(page.relative_to(BUILT)) for page in PAGES]

pytestmark = pytest.mark.skipif(not PAGES, reason="the book is not built: run `make book` first")


@pytest.mark.parametrize("name", NAMES)
def test_a_page_works_alone_and_on_a_phone(browser, name):
    page = browser.open(BUILT / name)
    assert page.outside_requests == []
    assert page.errors == []

    formulas = page.evaluate("document.querySelectorAll('.math.notranslate').length")
    typeset = page.evaluate("document.querySelectorAll('.math.notranslate mjx-container svg').length")
    assert typeset >= formulas, "mathematics that is not typeset"
    assert page.evaluate("document.querySelectorAll('mjx-merror, [data-mjx-error]').length") == 0

    # Sphinx puts the file's own address where an author said nothing.
    silent = (
        "[...document.querySelectorAll('.bd-article img')].filter(i => !i.alt.trim() || i.alt.includes('_images/'))"
    )
    assert page.evaluate(f"{silent}.map(i => i.src)") == [], "pictures without alternative text"

    # Wide tables and formulas scroll in their own boxes: the page itself never scrolls sideways.
    page.resize(390, 844)
    page.settle(0.1)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_notation_has_mathematics_to_typeset(browser):
    page = browser.open(BUILT / "book" / "notation.html")
    assert page.evaluate("document.querySelectorAll('.bd-article mjx-container svg').length") > 20


def test_search_finds_a_word_without_a_server(browser):
    page = browser.open((BUILT / "search.html").as_uri() + "?q=leash")
    page.settle(1.0)
    found = page.evaluate("[...document.querySelectorAll('#search-results li a')].map(a => a.getAttribute('href'))")
    assert any("notation" in link or "algorithms" in link for link in found)
    assert page.errors == []


def test_pages_follow_the_readers_colours(browser):
    name = BUILT / "book" / "index.html"
    colour = "getComputedStyle(document.body).backgroundColor"
    light = browser.open(name).evaluate(colour)
    dark = browser.open(name, dark=True).evaluate(colour)
    assert _brightness(light) > 0.8
    assert _brightness(dark) < 0.2


def _brightness(colour: str) -> float:
    red, green, blue = (int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(",")[:3])
    return (red + green + blue) / (3 * 255)


def test_a_printed_page_is_text_and_nothing_else(browser, tmp_path):
    page = browser.open(BUILT / "book" / "index.html")
    page.prefer(medium="print")
    hidden = "getComputedStyle(document.querySelector('{}')).display"
    assert page.evaluate(hidden.format(".bd-sidebar-primary")) == "none"
    assert page.evaluate(hidden.format(".bd-header-article")) == "none"
    page.print_to_pdf(tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
    page.prefer()
