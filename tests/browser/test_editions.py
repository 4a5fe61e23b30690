"""Formulas, sheets and decks as Chromium makes them: a small EPUB, a small PDF and one chapter's slides."""

import re
import sys
import zipfile
from contextlib import nullcontext
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "book" / "_tools"))

import editions  # noqa: E402
import epub  # noqa: E402
import pdf  # noqa: E402
import slides  # noqa: E402

PAGE = r"""<html><body><div role="main"><h1>{title}</h1><p id="p">See <a href="{other}.xhtml#p">there</a>:
<span class="math">\(\mathbb E\,[x] &lt; y\)</span></p>
<div class="math" id="eq"><span class="eqno">(4)</span>\[\frac{{1}}{{G}}\sum_i A_i\]</div></div></body></html>"""
CONTENTS = [editions.Part("Both", (("a/one", False), ("a/two", False)))]


@pytest.fixture(autouse=True)
def one_browser(browser, monkeypatch):
    """The tools start a Chromium each; here they share that of the session."""
    for tool in (editions, pdf):
        monkeypatch.setattr(tool, "chromium", lambda: nullcontext(browser))


@pytest.fixture
def built(tmp_path):
    for name, other in (("one", "two"), ("two", "one")):
        file = tmp_path / "a" / f"{name}.xhtml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(PAGE.format(title=name.title(), other=other), encoding="utf-8")
    return tmp_path


def test_formulas_of_an_epub_are_mathml_with_their_tex_and_number(built):
    target = built / "book.epub"
    assert epub.write(built, CONTENTS, target, "a test") == []
    with zipfile.ZipFile(target) as book:
        page = book.read("a/one.xhtml").decode()
        assert 'properties="mathml"' in book.read("content.opf").decode()
    assert '<span class="eqno">(4)</span><math alttext="\\frac{1}{G}\\sum_i A_i"' in page
    assert 'alttext="\\mathbb E\\,[x] &lt; y"' in page
    assert "\U0001d53c" in page
    with pytest.raises(ValueError, match="MathJax cannot read '.*frac'"):
        editions.set_formulas([("x", False), ("\\frac", True)], "svg")


def test_a_pdf_has_an_outline_links_and_the_sheets_of_its_contents(built):
    target = built / "out" / "book.pdf"
    last = pdf.write(built, CONTENTS, target, "a test")
    data = target.read_bytes()
    assert data.startswith(b"%PDF-")
    assert pdf.sheets(data)["a-one--"] == 3  # behind the title and the contents
    assert pdf.sheets(data)["a-two--"] == last == 4
    assert len(re.findall(rb"/Subtype\s*/Link", data)) == 4  # two of the contents, two of the pages
    assert re.search(rb"/Outlines \d+ 0 R", data)
    assert not list(built.glob("*.html"))


def test_slides_are_turned_by_keys_and_ask_for_nothing(tmp_path, browser):
    slides.write([ROOT / "notebooks" / "grpo.ipynb"], tmp_path)
    page = browser.open(tmp_path / "grpo.html", width=960, height=540)
    now = "[...document.querySelectorAll('section')].findIndex((slide) => slide.getClientRects().length)"
    assert page.errors == []
    assert page.outside_requests == []
    assert page.evaluate(now) == 0
    page.press("ArrowRight", times=2)
    assert page.evaluate(now) == 2
    assert page.evaluate("location.hash") == "#3"
    page.press("End")
    page.press("ArrowRight")
    count = page.evaluate("document.querySelectorAll('section').length")
    assert page.evaluate(now) == count - 1
    page.press("Home")
    assert page.evaluate("document.querySelectorAll('section.now .notes')[0].getClientRects().length") == 0
    page.press("n")
    assert page.evaluate("document.querySelectorAll('section.now .notes')[0].getClientRects().length") == 1
    for _ in range(count):  # with notes and without, no slide is cut
        page.draw()
        over = "((s) => [s.scrollHeight - s.clientHeight, s.scrollWidth - s.clientWidth])"
        assert max(page.evaluate(f"{over}(document.querySelector('section.now .shown'))")) <= 1
        page.press("ArrowRight")
