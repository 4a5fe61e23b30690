"""The book as a zip, unpacked where nothing else lies: it opens, figures move and formulas are set."""

import sys
import zipfile
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.browser.explorers import opened

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


def test_it_opens_where_it_was_unpacked(browser, book):
    page = browser.open(book / "index.html")
    assert page.evaluate("document.querySelector('h1').textContent").startswith("Reinforcement learning")
    assert "downloads" not in page.evaluate("[...document.links].map((a) => a.href).join(' ')")
    assert page.errors == []
    assert page.outside_requests == []


def test_a_chapter_is_alive_and_asks_for_nothing_outside_its_folder(browser, book):
    page = opened(browser, str(book / "notebooks" / "gae-in-depth.html"), "document.querySelector('.gae-explorer')")
    assert page.evaluate("document.querySelectorAll('mjx-container').length") > 10
    assert page.errors == []
    asked = [unquote(url) for url in page.requests if url.startswith("file:")]
    assert len(asked) > 10
    assert [url for url in asked if not url.startswith(book.as_uri())] == []
