"""Each built page, opened from disk in a real browser with the network cut off."""

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.chromium import prefer
from tests.browser.conftest import around_the_code, is_listing
from tests.browser.explorers import luminance, style

BUILT = Path(__file__).resolve().parents[2] / "_build" / "html"
PAGES = sorted(page for page in BUILT.rglob("*.html") if "_static" not in page.parts)
NAMES = [str(page.relative_to(BUILT)) for page in PAGES]
# Listings of code that are one page but for the code and its name: the first of each kind is opened.
LISTINGS = {name: around_the_code(name) for name in NAMES if is_listing(name)}
ALIKE = {page: name for name, page in reversed(LISTINGS.items())}
OPENED = [name for name in NAMES if name not in LISTINGS or name in ALIKE.values()]
LOOKS = {(1400, False), (1400, True), (390, False), (390, True), (1600, False), (1920, False)}  # width, dark

pytestmark = pytest.mark.skipif(not PAGES, reason="the book is not built: run `make book` first")


@pytest.mark.parametrize("name", OPENED)
def test_a_page_works_alone_and_in_every_light(visits, name, request):
    page = visits.of(name)
    request.node.user_properties.append(("seconds", f"{page.seconds:.2f}"))  # the visit's, which is only waited for
    assert page.wrong == [], "errors, or requests that left the disk"
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


def test_few_listings_stand_for_all():
    assert len(LISTINGS) > 100
    assert len(ALIKE) <= 6  # two depths of folders; more where a build has been mended in part
    assert all(page.count("<pre></pre>") == 1 for page in ALIKE)


def test_the_notation_has_mathematics_to_typeset(opened):
    assert opened(BUILT / "book" / "notation.html").locator(".bd-article mjx-container svg").count() > 20


def test_search_finds_a_word_without_a_server(opened):
    page = opened((BUILT / "search.html").as_uri() + "?q=aggregation")
    links = (f"#search-results li a[href*={name}]" for name in ("notation", "algorithms"))
    expect(page.locator(", ".join(links)).first).to_be_attached()  # results come one by one


def test_pages_follow_the_readers_colours(opened):
    page = opened(BUILT / "book" / "index.html")
    assert luminance(style(page.locator("body"), "backgroundColor")) > 0.6
    prefer(page, dark=True)
    assert luminance(style(page.locator("body"), "backgroundColor")) < 0.03


def test_a_printed_page_is_text_and_nothing_else(opened):
    page = opened(BUILT / "book" / "index.html")
    page.emulate_media(media="print")
    for gone in (".bd-sidebar-primary", ".bd-header-article"):
        assert style(page.locator(gone).first, "display") == "none"
    assert page.pdf().startswith(b"%PDF")
