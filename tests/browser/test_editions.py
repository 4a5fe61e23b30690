"""Formulas, sheets and decks as Chromium makes them: a small EPUB, a small PDF and one chapter's slides."""

import json
import re
import struct
import sys
import zipfile
import zlib
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.browser.chromium import draw

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "book" / "_tools"))

import editions  # noqa: E402
import epub  # noqa: E402
import pdf  # noqa: E402
import slides  # noqa: E402
import stills  # noqa: E402

PAGE = r"""<html><body><div role="main"><h1>{title}</h1><p id="p">See <a href="{other}.xhtml#p">there</a>:
<span class="math">\(\mathbb E\,[x] &lt; y\)</span></p>
<div class="math" id="eq"><span class="eqno">(4)</span>\[\frac{{1}}{{G}}\sum_i A_i\]</div></div></body></html>"""
CONTENTS = [editions.Part("Both", (("a/one", False), ("a/two", False)))]


@pytest.fixture(autouse=True)
def one_browser(chromium, monkeypatch):
    """The tools start a Chromium each; here they share that of the session."""
    for tool in (editions, pdf):
        monkeypatch.setattr(tool, "chromium", lambda: nullcontext(chromium))


@pytest.fixture
def built(tmp_path):
    for name, other in (("one", "two"), ("two", "one")):
        file = tmp_path / "a" / f"{name}.xhtml"
        file.parent.mkdir(exist_ok=True)
        title = (
            "Two: a heading that is so long that it does not fit into one line of a sheet" if name == "two" else "One"
        )
        file.write_text(PAGE.format(title=title, other=other), encoding="utf-8")
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


def test_a_wide_formula_of_an_epub_has_its_number_below(built):
    page = built / "a" / "one.xhtml"
    wide = page.read_text(encoding="utf-8").replace(r"\sum_i A_i", "+".join("abcdefghijklmnopqrst"))
    page.write_text(wide, encoding="utf-8")
    epub.write(built, CONTENTS, target := built / "book.epub", "a test")
    with zipfile.ZipFile(target) as book:
        page = book.read("a/one.xhtml").decode()
    assert re.search(r'<div class="math broad[ \w]*"[^>]*><math .*</math><span class="eqno">\(4\)', page, re.DOTALL)


FIGURE = """export default { render({ model, el }) { el.innerHTML = `<div class="live-figure"><div class="controls">
<label>rate <input type="range"><output>${model.get("rate")}</output></label></div><div class="examples" role="group"
aria-label="task"><button aria-pressed="true">adding</button><button>other</button></div>
<svg viewBox="0 0 9 3"><rect width="9" height="3"></rect></svg><p class="key">Solid: it. Press a token to change it.</p>
<table><tr><td><button>I</button></td></tr></table><p class="said">The rate is ${model.get("rate")}.</p></div>`; } };"""


def test_a_live_figure_has_a_still_that_asks_for_nothing(tmp_path, chromium):
    state = {"_esm": FIGURE, "rate": 0.5, "alt": "A bar"}
    picture, said = stills.draw(state, chromium)
    assert picture.startswith(b"\x89PNG")
    assert said == "The rate is 0.5. Set to: rate 0.5; task: adding."
    widgets = {"application/vnd.jupyter.widget-state+json": {"state": {"w1": {"state": state}, "l": {"state": {}}}}}
    notebook = tmp_path / "a.ipynb"
    notebook.write_text(json.dumps({"cells": [], "metadata": {"widgets": widgets}}), encoding="utf-8")
    place = '<script type="application/vnd.jupyter.widget-view+json">{"model_id": "%s"}</script>'
    cell = f'<div class="cell"><div class="cell_input">Explorer()</div>{place % "w1"}</div>{place % "w2"}'
    text = editions.BeautifulSoup(cell, "html.parser")
    stills.place_stills(text, notebook, tmp_path, "../", lambda: chromium)
    assert text.img["alt"] == "A bar"
    assert (tmp_path / text.img["src"].removeprefix("../")).read_bytes() == picture
    assert text.figcaption.get_text() == f"{stills.MOVES} {said}"
    assert "Explorer()" not in text.get_text()
    assert text.select("p.still")[0].get_text() == "A live figure stands here in the web book."


def test_every_live_figure_of_the_book_has_a_still(chromium):
    found = [
        (path.stem, state) for path in (ROOT / "notebooks").glob("*.ipynb") for state in stills.saved(path).values()
    ]
    assert len(found) > 20
    for name, state in found:
        picture, said = stills.draw(state, chromium)
        assert len(picture) > 5000, name  # more than white
        assert said.endswith("."), name
        assert "Press" not in said, name


def test_a_pdf_has_an_outline_links_and_the_sheets_of_its_contents(built, monkeypatch):
    target = built / "out" / "book.pdf"
    plain = []
    monkeypatch.setattr(pdf, "packed", lambda data, packed=pdf.packed: plain.append(data) or packed(data))
    last = pdf.write(built, CONTENTS, target, "a test")
    assert pdf.sheets(plain[0])["a-one--"] == 3  # behind the title and the contents
    assert pdf.sheets(plain[0])["a-two--"] == last == 4
    assert len(re.findall(rb"/Subtype\s*/Link", plain[0])) == 4  # two of the contents, two of the pages
    assert re.search(rb"/Outlines \d+ 0 R", plain[0])
    assert b"(Two: a heading that is so long that it does not fit into one line of a sheet)" in plain[0]
    assert not list(built.glob("*.html"))
    # What is packed is read as a reader does: from its end to the table, and from there to every object.
    data = target.read_bytes()
    assert len(data) < len(plain[0])
    table, about = stream_at(data, int(re.search(rb"startxref\n(\d+)\n%%EOF\n$", data)[1]))
    root = int(re.search(rb"/Root (\d+) 0 R", about)[1])
    rows = list(struct.iter_unpack(">BIH", table))
    assert rows[0][0] == 0
    for number, text in objects(plain[0]).items():
        kind, where, which = rows[number]
        if kind == 1:
            assert data[where:].startswith(b"%d 0 obj\n%b\nendobj" % (number, text))
        else:
            inside, about = stream_at(data, rows[where][1])
            first = int(re.search(rb"/First (\d+)", about)[1])
            pairs = [int(word) for word in inside[:first].split()]
            assert pairs[2 * which] == number
            assert inside[first + pairs[2 * which + 1] :].startswith(
                text + (b"\n" if 2 * which + 2 < len(pairs) else b"")
            )
    assert b"/Catalog" in objects(plain[0])[root]
    with pytest.raises(ValueError, match="no plain table of its objects"):
        pdf.packed(data)


def objects(data):
    """The objects of a file as Chromium writes it."""
    found = re.finditer(rb"(?:^|\n)(\d+) 0 obj\n(.*?)\nendobj", data, re.DOTALL)
    return {int(one[1]): one[2] for one in found}


def stream_at(data, where):
    """A compressed stream, unpacked, and what its dictionary says."""
    head = re.match(rb"\d+ 0 obj\n(<<.*?>>) stream\n", data[where:], re.DOTALL)
    length = int(re.search(rb"/Length (\d+)", head[1])[1])
    return zlib.decompress(data[where + head.end() :][:length]), head[1]


def test_slides_are_turned_by_keys_and_ask_for_nothing(tmp_path, opened):
    slides.write([ROOT / "notebooks" / "grpo.ipynb"], tmp_path)
    page = opened(tmp_path / "grpo.html", width=960, height=540)
    now = "[...document.querySelectorAll('section')].findIndex((slide) => slide.getClientRects().length)"
    key, notes = page.keyboard.press, page.locator("section.now .notes").first
    assert page.evaluate(now) == 0
    key("ArrowRight")
    key("ArrowRight")
    assert page.evaluate(now) == 2
    assert page.evaluate("location.hash") == "#3"
    key("End")
    key("ArrowRight")
    count = page.locator("section").count()
    assert page.evaluate(now) == count - 1
    key("Home")
    assert not notes.is_visible()
    key("n")
    assert notes.is_visible()
    for _ in range(count):  # with notes and without, no slide is cut
        draw(page)
        over = "(s) => Math.max(s.scrollHeight - s.clientHeight, s.scrollWidth - s.clientWidth)"
        assert page.locator("section.now .shown").first.evaluate(over) <= 1
        key("ArrowRight")
