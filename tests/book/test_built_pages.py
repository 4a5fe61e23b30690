"""The built pages name nothing outside themselves: no script, style, picture or frame that needs a network.

Ordinary links to papers are fine, nothing is fetched until the reader follows one. What the scripts do when they run is
seen in tests/browser.
"""

import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

BUILT = Path(__file__).resolve().parents[2] / "_build" / "html"
PAGES = sorted(page for page in BUILT.rglob("*.html") if "_static" not in page.parts)

# Attributes whose address a browser fetches by itself, and the values of rel= that make a <link> do so.
FETCHED = {
    ("script", "src"),
    ("img", "src"),
    ("img", "srcset"),
    ("source", "src"),
    ("source", "srcset"),
    ("video", "src"),
    ("video", "poster"),
    ("audio", "src"),
    ("track", "src"),
    ("iframe", "src"),
    ("embed", "src"),
    ("object", "data"),
    ("image", "href"),
    ("image", "xlink:href"),
    ("use", "href"),
    ("use", "xlink:href"),
}
FETCHING_LINKS = {
    "stylesheet",
    "icon",
    "shortcut",
    "apple-touch-icon",
    "manifest",
    "preload",
    "prefetch",
    "modulepreload",
    "preconnect",
    "dns-prefetch",
}
OUTSIDE = re.compile(r"^\s*([a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
CSS_ADDRESS = re.compile(r"""url\(\s*["']?([^"')]+)|@import\s+["']([^"']+)""")
SCRIPT_ADDRESS = re.compile(r"""["'`(]\s*((?:https?:)?//[\w.-]+\.[a-z]{2,}[^\s"'`)]*)""")
NAMESPACES = ("http://www.w3.org/", "https://www.w3.org/")  # names, never fetched


class Addresses(HTMLParser):
    """Collect what one page would fetch: addresses from attributes, styles and inline scripts."""

    def __init__(self, text: str):
        super().__init__()
        self.fetched: list[str] = []
        self.named_in_scripts: list[str] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = {name: value or "" for name, value in attributes}
        self._inside = tag if tag in ("script", "style") else ""
        for name, value in values.items():
            if (tag, name) in FETCHED:
                parts = value.split(",") if name == "srcset" else [value]
                self.fetched += [part.split()[0] for part in parts if part.strip()]
        if tag == "link" and FETCHING_LINKS & set(values.get("rel", "").lower().split()):
            self.fetched.append(values.get("href", ""))
        self.fetched += css_addresses(values.get("style", ""))

    def handle_endtag(self, tag):
        if tag == self._inside:
            self._inside = ""

    def handle_data(self, data):
        if self._inside == "style":
            self.fetched += css_addresses(data)
        elif self._inside == "script":
            self.named_in_scripts += SCRIPT_ADDRESS.findall(data)


@cache
def addresses(page: Path) -> Addresses:
    return Addresses(page.read_text(encoding="utf-8"))


def css_addresses(css: str) -> list[str]:
    return [one or other for one, other in CSS_ADDRESS.findall(css)]


def outside(addresses: list[str]) -> list[str]:
    return [a for a in addresses if OUTSIDE.match(a) and not a.startswith(NAMESPACES)]


pytestmark = pytest.mark.skipif(not PAGES, reason="the book is not built: run `make book` first")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(BUILT)))
def test_a_page_names_no_outside_address(page):
    found = addresses(page)
    assert outside(found.fetched) == []
    assert outside(found.named_in_scripts) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(BUILT)))
def test_everything_a_page_fetches_was_built(page):
    missing = []
    for address in addresses(page).fetched:
        parts = urlsplit(address)
        if parts.scheme or parts.netloc or not parts.path:
            continue
        if not (page.parent / unquote(parts.path)).exists():
            missing.append(address)
    assert missing == []


def test_style_sheets_name_no_outside_address():
    sheets = sorted(BUILT.rglob("*.css"))
    assert sheets
    assert {s.name: found for s in sheets if (found := outside(css_addresses(s.read_text(encoding="utf-8"))))} == {}


def test_the_page_of_the_table_shows_every_algorithm_and_the_front_page_leads_to_it():
    rlhf_minimal = pytest.importorskip("rlhf_minimal")
    assert 'href="algorithms.html"' in (BUILT / "book" / "index.html").read_text(encoding="utf-8")
    text = (BUILT / "book" / "algorithms.html").read_text(encoding="utf-8")
    field = pytest.importorskip("rlhf_minimal.contrib").ALGORITHMS  # rows without a chapter, which the table leaves out
    assert [name for name in rlhf_minimal.ALGORITHMS if name not in field and f">{name}<" not in text] == []


@pytest.mark.parametrize(
    "page",
    [
        '<script src="https://cdn.example.org/x.js"></script>',
        '<script src="//cdn.example.org/x.js"></script>',
        '<link rel="stylesheet" href="https://fonts.example.org/css?family=Lato">',
        '<link rel="preconnect" href="https://fonts.example.org">',
        '<img src="http://example.org/a.png">',
        '<img srcset="a.png 1x, https://example.org/a.png 2x">',
        '<iframe src="https://example.org"></iframe>',
        '<div style="background: url(https://example.org/a.png)"></div>',
        "<style>@import 'https://example.org/a.css';</style>",
        '<script>require.config({paths: {x: "https://cdn.example.org/x"}})</script>',
    ],
)
def test_the_search_for_outside_addresses_finds_them(page):
    found = Addresses(page)
    assert outside(found.fetched + found.named_in_scripts)


def test_the_search_for_outside_addresses_leaves_links_alone():
    page = (
        '<a href="https://arxiv.org/abs/1707.06347">PPO</a> <link rel="canonical" href="https://example.org">'
        '<svg xmlns="http://www.w3.org/2000/svg"></svg><script>const ns = "http://www.w3.org/2000/svg";</script>'
    )
    found = Addresses(page)
    assert outside(found.fetched + found.named_in_scripts) == []


def test_the_first_chapter_and_the_questions_are_one_click_from_the_front_page():
    text = (BUILT / "book" / "index.html").read_text(encoding="utf-8")
    doors = text[text.index('class="sd-container-fluid') : text.index("algorithm-table")]
    assert doors.count("sd-card-body") == 3
    for target in ("../notebooks/from-zero.html", "how-to-read.html", "interview.html", "api/command-line.html"):
        assert f'href="{target}"' in doors, target
    assert 'href="how-to-read.html#two-hours-before-an-interview"' in doors
    assert text.index('<svg class="learning"') < text.index("sd-card-body") < text.index("algorithm-table")
