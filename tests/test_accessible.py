"""What the theme leaves without a name gets one, and only that changes."""

from pathlib import Path
from types import SimpleNamespace

import pytest

import accessible

ROOT = Path(__file__).resolve().parents[1]

# As sphinx-book-theme 1.2.0 and myst-nb 1.4.0 write them.
SEARCH = '<button class="btn search-button-field x" title="Search" aria-label="Search" data-bs-toggle="tooltip">'
BAR = '<summary aria-label="Toggle hidden content">\n<p>Show the imports</p></summary>'
ICON = '<i class="theme-switch fa-solid fa-moon   fa-lg" data-mode="dark"  title="Dark"></i>'


def test_what_has_words_is_named_by_them():
    assert "aria-label" not in accessible.mended(SEARCH)
    assert 'title="Search" data-bs-toggle="tooltip">' in accessible.mended(SEARCH)
    assert accessible.mended(BAR) == "<summary>\n<p>Show the imports</p></summary>"
    assert accessible.mended(ICON).endswith('data-mode="dark" aria-hidden="true"></i>')


def test_a_page_is_mended_once_and_nothing_else_changes():
    page = "".join([SEARCH, BAR, ICON])
    found = set()
    once = accessible.mended(page, found)
    assert found == set(accessible.MENDS)
    assert accessible.mended(once) == once
    other = '<button aria-label="Search"></button><details><summary>Answer</summary></details><i title="x"></i>'
    assert accessible.mended(other) == other


def app(pages, warned, monkeypatch):
    """A build of these pages."""
    templates = SimpleNamespace(render=lambda template, context: pages[template])
    built = SimpleNamespace(
        builder=SimpleNamespace(format="html", templates=templates), config=SimpleNamespace(master_doc="book/index")
    )
    logger = SimpleNamespace(warning=warned.append)
    monkeypatch.setattr(accessible.logging, "getLogger", lambda name: logger)
    accessible.wrap(built)
    return built


@pytest.mark.parametrize("lost", ["", *accessible.MENDS])
def test_a_theme_that_has_changed_is_noticed(lost, monkeypatch):
    parts = dict(zip(accessible.MENDS, (SEARCH, BAR, ICON), strict=True))
    pages = {what: "nothing" if what == lost else text for what, text in parts.items()}
    warned = []
    built = app(pages, warned, monkeypatch)
    for what, text in pages.items():
        assert built.builder.templates.render(what, {}) == accessible.mended(text)
    accessible.check(built, None)
    assert len(warned) == bool(lost)
    assert all(lost in words for words in warned)
