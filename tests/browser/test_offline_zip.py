"""The book as a zip, unpacked where nothing else lies: it opens, figures move and formulas are set."""

import sys
import zipfile
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "_build" / "html"
sys.path.insert(0, str(ROOT / "book" / "_tools"))

import downloads  # noqa: E402


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    if not (BUILT / "index.html").is_file():
        pytest.skip("the book is not built: run `make book` first")
    folder = tmp_path_factory.mktemp("reader")
    downloads.write_zip(BUILT, folder / "book.zip")
    with zipfile.ZipFile(folder / "book.zip") as packed:
        packed.extractall(folder)
    return folder / downloads.NAME


def test_it_opens_where_it_was_unpacked(opened, book):
    page = opened(book / "index.html")
    assert page.locator("h1").first.text_content().startswith("Reinforcement learning")
    assert "downloads" not in page.evaluate("[...document.links].map((a) => a.href).join(' ')")


def test_a_chapter_is_alive_and_asks_for_nothing_outside_its_folder(opened, book):
    page = opened(book / "notebooks" / "gae-in-depth.html")
    assert page.locator(".gae-explorer").count() == 1
    assert page.locator("mjx-container").count() > 10
    asked = [unquote(request.url) for request in page.requests() if request.url.startswith("file:")]
    assert 10 < len(asked) < 100  # Playwright remembers a hundred
    assert [url for url in asked if not url.startswith(book.as_uri())] == []
