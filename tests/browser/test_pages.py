"""Each built page, opened from disk in a real browser with the network cut off."""

from pathlib import Path

import pytest

BUILT = Path(__file__).resolve().parents[2] / "_build" / "html"
PAGES = sorted(page for page in BUILT.rglob("*.html") if "_static" not in page.parts)
NAMES = [str(page.relative_to(BUILT)) for page in PAGES]

# Every piece of text that is paler than WCAG's level AA asks for: 4.5 to 1 against its ground, 3 to 1 if it is large.
PALE = r"""(() => {
  const rgba = (colour) => { const c = colour.match(/[\d.]+/g).map(Number); return c.length < 4 ? [...c, 1] : c; };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const linear = (c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const ground = (element) => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) {
      if (getComputedStyle(e).backgroundImage !== "none") return null;  // cannot be told
      layers.push(rgba(getComputedStyle(e).backgroundColor));
    }
    return layers.reduceRight((below, top) => over(top, below), [255, 255, 255, 1]);
  };
  const left_out = "script, style, option, [aria-hidden=true], mjx-assistive-mml, .headerlink";
  const found = new Set(), texts = document.createTreeWalker(document.querySelector(".bd-main"), NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const e = texts.currentNode.parentElement, text = texts.currentNode.textContent.trim();
    if (!text || e.closest(left_out) || !e.checkVisibility({ opacityProperty: true, visibilityProperty: true })) {
      continue;
    }
    const style = getComputedStyle(e), below = ground(e);
    if (!below) continue;
    const ink = rgba(style.color);
    for (let faded = e; faded; faded = faded.parentElement) ink[3] *= getComputedStyle(faded).opacity;
    const [dark, bright] = [luminance(over(ink, below)), luminance(below)].sort((a, b) => a - b);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    const ratio = (bright + 0.05) / (dark + 0.05);
    if (ratio < (large ? 3 : 4.5)) found.add(`${e.tagName}.${e.className} ${ratio.toFixed(2)}: ${text.slice(0, 40)}`);
  }
  return [...found].slice(0, 10);
})()"""

pytestmark = pytest.mark.skipif(not PAGES, reason="the book is not built: run `make book` first")


@pytest.mark.parametrize("name", NAMES)
def test_a_page_works_alone_and_in_every_light(browser, name):
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

    # On a desk and on a phone, by day and by night: all text can be read, and the page never scrolls sideways (wide
    # tables and formulas scroll in their own boxes).
    for dark in (False, True):
        page.prefer(dark=dark)
        for width, height in ((1400, 900), (390, 844)):
            page.resize(width, height)
            page.settle(0.2)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.evaluate("document.documentElement.dataset.theme") == ("dark" if dark else "light")
            if not name.startswith(
                "_modules/rlhf_minimal/"
            ):  # forty listings of code that look alike: the index will do
                pale = page.evaluate(PALE)
                assert pale == [], f"pale text, {'dark' if dark else 'light'}, {width} wide: {pale}"
    page.prefer()


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
