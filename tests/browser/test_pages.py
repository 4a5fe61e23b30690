"""Each built page, opened from disk in a real browser with the network cut off."""

from pathlib import Path

import pytest

from tests.browser.conftest import is_listing

BUILT = Path(__file__).resolve().parents[2] / "_build" / "html"
PAGES = sorted(page for page in BUILT.rglob("*.html") if "_static" not in page.parts)
NAMES = [str(page.relative_to(BUILT)) for page in PAGES]
LOOKS = {(1400, False), (1400, True), (390, False), (390, True), (1600, False), (1920, False)}  # width, dark

pytestmark = pytest.mark.skipif(not PAGES, reason="the book is not built: run `make book` first")


@pytest.mark.parametrize("name", NAMES)
def test_a_page_works_alone_and_in_every_light(visits, name, request):
    page = visits.of(name)
    request.node.user_properties.append(("seconds", f"{page.seconds:.2f}"))  # the visit's, which is only waited for
    assert page.outside_requests == []
    assert page.errors == []
    assert page.typeset >= page.formulas, "mathematics that is not typeset"
    assert page.misprinted == 0
    assert page.silent == [], "pictures without alternative text"

    # On three desks and on a phone, by day and by night: all text can be read, and the page never scrolls sideways
    # (wide tables and formulas scroll in their own boxes).
    looks = {(look.width, look.dark) for look in page.looks}
    assert looks == ({(1400, False), (390, False)} if is_listing(name) else LOOKS)
    for look in page.looks:
        where = f"{'dark' if look.dark else 'light'}, {look.width} wide"
        assert look.scroll_width <= look.width, f"over the edge, {where}: {look.over}"
        assert look.theme == ("dark" if look.dark else "light"), where
        assert look.pale == [], f"pale text, {where}"


def test_the_notation_has_mathematics_to_typeset(browser):
    page = browser.open(BUILT / "book" / "notation.html")
    assert page.evaluate("document.querySelectorAll('.bd-article mjx-container svg').length") > 20


def test_search_finds_a_word_without_a_server(browser):
    page = browser.open((BUILT / "search.html").as_uri() + "?q=aggregation")
    for _ in range(60):  # results come one by one
        if page.evaluate("document.querySelector('#search-results').innerText.includes('Search finished')"):
            break
        page.settle(0.5)
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
