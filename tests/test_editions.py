"""What the book is carried in: which pages an edition holds, an EPUB read back, and a deck of slides a core."""

import io
import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import matplotlib.pyplot as plt
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "book" / "_tools"))

import editions  # noqa: E402
import epub  # noqa: E402
import pdf  # noqa: E402
import slides  # noqa: E402

ONE = """<html><body><div role="main"><section id="one">
<h1>1. One &amp; only<a class="headerlink" href="#one">#</a></h1>
<p id="here">See <a href="two.xhtml#there">two</a>, <a href="two.html#gone">its end</a>,
<a href="../book/trainer.xhtml">the
trainer</a>, <a href="#here">here</a> and <a href="https://arxiv.org">out</a>.</p><p id="here">Twice.</p>
<script>alert(1)</script><button>Press</button><form hidden=""><label>Choose</label><output></output></form>
<script type="application/vnd.jupyter.widget-view+json">{}</script><div class="toctree-wrapper">
</div><p role="doc-biblioentry">Cited</p><details><summary>More</summary><p><div>Lies open</div></p></details>
<div class="cell tag_remove-cell">set-up</div><div class="mjs-figure" aria-label="A curve."></div>
<img src="../_images/a.png" data-x="1" width="50%"><img src="../_images/none.png" alt="Nothing there">
<svg viewbox="0 0 2 2" width="2"><a href="two.xhtml"><title>no</title>
<pattern id="hatch" patterntransform="rotate(45)"></pattern><circle r="1"></circle></a></svg>
<table><tr><td><code>a_long_name</code></td><td>A sentence that needs some room.</td></tr></table>
</section></div></body></html>"""
TWO = '<html><body><div role="main"><h1>Two</h1><p id="there">There.</p></div></body></html>'
CONTENTS = [
    editions.Part("", (("notebooks/one", False),)),
    editions.Part("Next", (("notebooks/two", False), ("notebooks/two-in-depth", True))),
]


@pytest.fixture
def built(tmp_path):
    """What Sphinx's builder might have written: three pages and a picture."""
    for name, text in {"one": ONE, "two": TWO, "two-in-depth": TWO}.items():
        file = tmp_path / "built" / "notebooks" / f"{name}.xhtml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    (tmp_path / "built" / "_images").mkdir()
    (tmp_path / "built" / "_images" / "a.png").write_bytes(b"\x89PNG")
    return tmp_path / "built"


def names(edition):
    return [page for part in editions.parts(edition) for page, _ in part.pages]


def test_the_cores_alone_and_the_cores_with_their_depths():
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    listed = re.findall(r"'file': '([^']+)'", str(toc))
    cores, depths = names("cores"), names("depths")
    assert len(set(cores)) == len(cores)
    assert set(cores) < set(depths)
    assert not any(name.endswith("-in-depth") or "/solutions/" in name for name in cores)
    chapters = {name for name in listed if name.startswith("notebooks/")}
    assert chapters <= set(depths)
    assert {name for name in chapters if not name.endswith("-in-depth")} <= set(cores)
    left = {name.removeprefix("book/") for name in {*listed, toc["root"]} - set(depths)}
    assert {name for name in left if not name.startswith("api/")} == editions.LIVE
    with pytest.raises(ValueError, match="there is no edition 'all'; choose one of cores, depths"):
        editions.parts("all")


def test_an_epub_is_valid_and_its_links_lead_somewhere(built, tmp_path):
    target = tmp_path / "out" / "book.epub"
    assert epub.write(built, CONTENTS, target, "a test") == []
    with zipfile.ZipFile(target) as book:
        assert book.namelist()[0] == "mimetype"
        page = book.read("notebooks/one.xhtml").decode()
        nav = book.read("nav.xhtml").decode()
        assert "_images/a.png" in book.namelist()
    assert re.findall(r'<a [^>]*href="([^"]*)"', page) == [
        "two.xhtml#there",
        "two.xhtml",
        "one.xhtml#here",
        "https://arxiv.org",
    ]
    assert '<span class="elsewhere">the\ntrainer</span>,' in page  # it stands in the web book
    assert not any(word in page for word in ("alert", "Press", "set-up", "headerlink", "data-x", "50%", "<title>no"))
    assert not any(word in page for word in ("<form", "Choose", "<output", "toctree-wrapper", "doc-biblioentry"))
    assert "A live figure stands here in the web book. A curve." in page
    assert '<p class="still">A live figure stands here in the web book.</p>' in page  # one that no notebook has saved
    assert 'patternTransform="rotate(45)"' in page
    assert "Lies open" in page
    assert 'viewBox="0 0 2 2"' in page
    assert '<td><code>a_<wbr/>long_<wbr/>name</code></td><td class="long">A sentence' in page
    assert '<img alt="" src="../_images/a.png"/>' in page
    assert "Nothing there" in page
    assert "1. One &amp; only</a>" in nav
    assert re.search(r"Two</a><ol><li><a[^>]*two-in-depth", nav)


def test_what_an_edition_leaves_out_is_said_on_its_first_page(built, tmp_path):
    for edition in editions.EDITIONS:
        assert len(told := editions.note(edition)) == 3
        target = tmp_path / f"{edition}.epub"
        assert epub.write(built, CONTENTS, target, editions.EDITIONS[edition], told) == []
        with zipfile.ZipFile(target) as book:
            first = book.read("title.xhtml").decode()
            package = book.read("content.opf").decode()
        assert all(paragraph in first for paragraph in told)
        spine = re.findall(r'idref="(f\d+)"', package)
        assert f'id="{spine[0]}" href="title.xhtml"' in package
    assert editions.note("a test") == []


CELL = """<div class="cell {tags}"><details class="hide above-input"><summary>{show}</summary><div class="cell_input">
<pre>{code}</pre></div>{inside}</details><div class="cell_output">{shows}</div></div>"""


def opened(*blocks, tmp_path):
    """The programs that a page made of these blocks prints."""
    file = tmp_path / "page.xhtml"
    file.write_text(f"<html><body>{''.join(blocks)}</body></html>", encoding="utf-8")
    text = editions.text_of(file)
    assert text.select("details, summary") == []
    return [pre.get_text() for pre in text.select("pre")], text


def folded(code, *, show="Show the code", shows="", inside="", tags=""):
    return CELL.format(code=code, show=show, shows=shows, inside=inside, tags=tags)


def test_of_folded_programs_those_are_printed_that_the_text_speaks_of(tmp_path):
    block, plain = "<p>The folded block checks it.</p>", "<p>Nothing.</p>"
    fit = "def fit(x):\n    pass"
    figure = folded("draw()", shows="<img src='a.png' alt='A'>")
    imports = folded("import torch", show="Show the imports")
    for blocks, expected in (
        ((plain, folded("check()")), []),
        ((block, folded("check()"), folded("again()"), plain, folded("other()")), ["check()", "again()"]),
        ((block, figure, folded("check()")), ["check()"]),
        ((block, imports, folded("check()")), ["check()"]),
        ((block, imports), ["import torch"]),  # where nothing else can be meant
        ((plain, folded("other()"), folded("before()"), block, "<h2>Next</h2>", folded("later()")), ["before()"]),
        ((folded(fit), plain, "<p>The folded <code>fit</code> is a loop.</p>", folded("other()")), [fit]),
        (("<p>Answers, folded away.</p>", folded("check()")), []),
    ):
        programs, text = opened(*blocks, tmp_path=tmp_path)
        assert programs == expected
        assert len(text.find_all(string="Folded in the web book:")) == len(programs)
    setup = f"import torch\nfrom a import (\n    b,\n)\n\nx = 1\n\n\n{fit}\n\n\ny = 2\n"
    imports = folded(setup, show="Show the imports")
    programs, text = opened(imports, plain, "<p>The folded fit is a loop.</p>", folded("other()"), tmp_path=tmp_path)
    assert programs == [f"{fit}\n"]  # the function alone, and where the text speaks of it
    assert text.select("pre, p")[-1].parent.get("class") == ["cell_input"]
    programs, _ = opened(block, imports, tmp_path=tmp_path)
    assert programs == [setup[setup.index("x = 1") :]]
    _, text = opened(plain, folded("draw()", inside="<div class='cell_output'>A list</div>"), tmp_path=tmp_path)
    assert "A list" in text.get_text()  # what a cell shows is never left out


def test_nobody_is_asked_to_press_what_is_printed(tmp_path):
    said = "<p><em>Grey: 0.5. Where the figure moves, set it to 0.5, drag: which one? The end.</em></p>"
    tests = "<details class='equation-tests'><summary>Held by 2 tests</summary><ul><li>test_a</li></ul></details>"
    twin = "<figure class='mjs'><div class='mjs-figure' aria-label='Press'></div></figure>"
    twin += "<figure class='learning-picture'></figure>"
    _, text = opened(said, "<p>Our answers, folded away. They. Try, then unfold.</p>", tests, twin, tmp_path=tmp_path)
    words = " ".join(text.get_text().split())
    assert "Grey: 0.5. In the web book this figure moves. The end." in words
    assert "Our answers. They. Try." in words
    assert words.endswith(
        "Held by 2 tests."
    )  # no list of names, and of two figures of the same the one that stands still


def test_a_title_and_a_short_program_stay_with_what_follows():
    many = "\n".join(["x"] * editions.SHORT)
    text = editions.BeautifulSoup(
        f"<div><p><strong>Exercise 1.2: a</strong> (5 minutes)</p><p>So:</p><p><strong>A point.</strong> More.</p>"
        f"<pre>x\n</pre><pre>{many}\n</pre><table><tr><td>2025-01</td></tr></table></div>",
        "html.parser",
    )
    editions.tidy(text)
    assert ["lead" in p.get("class", []) for p in text.select("p")] == [True, True, False]
    assert ["short" in pre.get("class", []) for pre in text.select("pre")] == [True, False]
    assert text.td["class"] == ["month"]


def test_a_drawing_of_matplotlib_becomes_one_that_epub_allows():
    plt.rcParams["svg.fonttype"] = "path"
    figure, file = plt.figure(), io.BytesIO()
    figure.text(0.5, 0.5, "a blank")
    figure.savefig(file, format="svg")
    plt.close(figure)
    drawn = epub._drawing(file.getvalue())
    paths = list(ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}path"))
    assert b"<!DOCTYPE" in file.getvalue()
    assert b"<!DOCTYPE" not in drawn
    assert "" in [path.get("d") for path in paths]
    assert all(path.get("d") is not None for path in paths)


def test_what_a_reading_system_would_refuse_is_said(built, tmp_path):
    target = tmp_path / "book.epub"
    epub.write(built, CONTENTS, target, "a test")
    with zipfile.ZipFile(target) as book:
        files = {name: book.read(name) for name in book.namelist()}
    bad = files | {
        "notebooks/two.xhtml": b'<p xmlns="http://www.w3.org/1999/xhtml"><a href="#x">x</a><label/>'
        b'<img src="https://example.org/a.png"/></p>',
        "more.txt": b"",
    }
    bad["notebooks/two-in-depth.xhtml"] = b"<p><br></p>"
    del bad["_images/a.png"]
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as book:
        for name, data in bad.items():
            book.writestr(name, data)
    said = "\n".join(epub.check(target))
    assert "the first file is not an unpacked mimetype" in said
    assert "notebooks/two-in-depth.xhtml: mismatched tag" in said
    assert "_images/a.png is listed and not there" in said
    assert "more.txt is there and not listed" in said
    assert "notebooks/two.xhtml: #x leads nowhere" in said
    assert "notebooks/two.xhtml: a label is of use in a browser alone" in said
    assert "notebooks/two.xhtml: a img has no words beside it" in said
    assert "notebooks/two.xhtml: https://example.org/a.png is on the network" in said
    assert "notebooks/one.xhtml: two.xhtml#there leads nowhere" in said


def test_epubcheck_has_nothing_to_say(built, tmp_path):
    program = shutil.which("epubcheck")
    if program is None or shutil.which("java") is None:
        pytest.skip("epubcheck is not installed (Debian: apt-get install epubcheck)")
    figure, axes = plt.subplots(figsize=(1, 1))
    axes.plot([1, 2], label="$x^2$")
    axes.set_title("with a blank")
    axes.fill_between([0, 1], [1, 2], hatch="/")
    for kind in ("png", "svg"):  # figures of either kind, as matplotlib writes them
        figure.savefig(built / "_images" / f"a.{kind}")
    plt.close(figure)
    (built / "notebooks" / "two.xhtml").write_text(TWO.replace("There.", '<img src="../_images/a.svg" alt="A line">'))
    target = tmp_path / "book.epub"
    assert epub.write(built, CONTENTS, target, "a test") == []
    said = subprocess.run(  # Debian's program is the archive itself, which not every kernel starts
        [*(["java", "-jar"] if Path(program).resolve().suffix == ".jar" else []), program, str(target)],
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r"^(?:FATAL|ERROR|WARNING).*", said.stdout + said.stderr, re.MULTILINE)
    assert (found, said.returncode) == ([], 0)


def test_a_table_too_wide_for_a_reading_system_becomes_lists():
    heads = "".join(f"<th>column {i}</th>" for i in range(8))
    row = "<td><p>ppo</p></td><td>-</td>" + "<td><code>a-quite-long_word</code></td>" * 5 + "<td>\ue0000\ue001</td>"
    soup = editions.BeautifulSoup(
        f"<table id='t'><thead><tr>{heads}</tr></thead><tbody><tr>{row}</tr></tbody></table>", "html.parser"
    )
    assert epub.room(soup.table, ["<math>abc</math>"]) == 8 * 8  # two beside each word; "column" is six
    assert epub.room(soup.table, [f"<math><mi>{'x' * 40}</mi></math>"]) == 7 * 8 + 42
    epub.stack(soup.table)
    assert str(soup).startswith(
        '<div class="stacked" id="t"><p class="row"><span class="column">column 0: </span><span>ppo</span></p><ul><li>'
        '<span class="column">column 2: </span><code>a-quite-long_word</code></li>'
    )
    assert "column 1" not in str(soup)  # a dash says nothing
    spans = editions.BeautifulSoup("<table><tr><td colspan='2'>1</td></tr></table>", "html.parser")
    epub.stack(spans.table)
    assert spans.table is not None


def test_a_figure_on_a_slide_is_drawn_in_lines_where_its_cell_has_them():
    assert slides.address_of({"image/png": "aGk\n=\n", "image/svg+xml": ["<svg>", "</svg>"]}).startswith(
        "data:image/svg+xml;base64,PHN2Zz48"
    )
    assert slides.address_of({"image/png": "aGk\n=\n"}) == "data:image/png;base64,aGk="
    assert slides.address_of({"text/plain": "5"}) is None


def test_without_built_pages_it_says_what_to_do(tmp_path, capsys):
    for tool in (epub, pdf):
        assert tool.main(["--built", str(tmp_path), "--out", str(tmp_path)]) == 1
        assert "has not been built: run the builder first" in capsys.readouterr().err


def test_a_formula_keeps_its_number_and_its_kind():
    page = editions.BeautifulSoup(r'<div class="math"><span class="eqno">(3)</span>\[x^2\]</div>', "html.parser")
    tex, display, number = editions.tex_of(page.div)
    assert (tex, display, number[0].get_text()) == ("x^2", True, "(3)")
    page = editions.BeautifulSoup(r'<span class="math">\(a < b\)</span>', "html.parser")
    assert editions.tex_of(page.span) == ("a < b", False, [])


def test_letters_of_a_variant_are_their_own_characters():
    said = epub.plain_mathml(
        '<math>\n <mi mathvariant="double-struck" data-x="1">E</mi> <mi mathvariant="normal">d</mi></math>'
    )
    assert said == '<math><mi mathvariant="normal">\U0001d53c</mi><mi mathvariant="normal">d</mi></math>'


def test_joined_pages_have_ids_of_their_own_and_links_that_lead_to_them(built):
    pages = pdf.prepared(built, CONTENTS)
    text = pdf.joined(built, CONTENTS, "a test", {pdf.place("notebooks/two"): 7}, pages)
    ids = re.findall(r'\sid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    inside = [link[1:] for link in re.findall(r'href="(#[^"]+)"', text)]
    assert set(inside) <= set(ids)
    assert inside.count("notebooks-two--") == 2  # the contents, and the link whose end is gone
    assert 'src="_images/a.png"' in text
    assert re.search(r"Two</a><span>7</span>", text)
    assert [re.search(rf"<h(\d)>{title}", text)[1] for title in ("Next", "Two", "1. One")] == ["1", "2", "2"]


@pytest.mark.parametrize("path", slides.cores(), ids=lambda path: path.stem)
def test_a_deck_has_what_its_chapter_says(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    title, deck = slides.deck(notebook)
    assert title == "".join(notebook["cells"][0]["source"]).splitlines()[0].removeprefix("# ")
    shown = [block for slide in deck for block in slide.shown]
    kinds = {block.kind for block in shown}
    assert "figure" in kinds
    assert any("$$" in block.text for block in shown)
    assert all(block.alt for block in shown if block.kind == "figure")
    assert any(block.text.startswith("**The main point") for block in shown)
    questions = [slide for slide in deck if slide.title == "Three questions"]
    assert [len(slide.shown) for slide in questions] == [3], "a core has three cells from `question/…`"
    whole = "\n".join(
        "".join(said)
        for cell in notebook["cells"]
        for said in (cell["source"], *(out.get("data", {}).get("text/markdown", "") for out in cell.get("outputs", [])))
    )
    said = [block.text for block in shown if block.kind == "text" and not block.origin]
    assert said
    assert [text for text in said if text not in whole] == []  # a slide's words are the chapter's


def test_every_chapter_has_a_deck_and_practice_has_none():
    assert {path.stem for path in slides.cores()} == {
        name.removeprefix("notebooks/") for name in names("cores") if name.startswith("notebooks/")
    } - {"whiteboard"}


def test_a_slide_holds_whole_sentences_and_the_first_rows():
    assert slides.shortened("One two. Three *four. Five* six.", words=2) == "One two."
    assert slides.shortened("A *b c. D* e. F.", words=2) == "A *b c. D* e. F."  # an emphasis is not cut
    rows = "\n".join(["| a |", "|---|", *(f"| {i} |" for i in range(20))])
    assert slides.shortened(rows).endswith("| 9 |\n\n(10 more rows in the chapter.)")
    assert slides.shortened("- a. B.\n- c.", words=1) == "- a. B.\n- c."


def test_a_figure_of_either_kind_is_in_its_deck():
    def shown(kind, content):
        output = {"output_type": "display_data", "data": {kind: content, "text/plain": "<Figure>"}}
        cell = {"cell_type": "code", "source": "", "metadata": {}, "outputs": [output]}
        (block,) = slides.blocks({"cells": [cell]})
        return slides.Writer().block(block, whole=True)

    assert shown("image/png", "iVBO\nRw0K\n") == '<img src="data:image/png;base64,iVBORw0K" alt="">'
    drawing = shown("image/svg+xml", ["<svg>\n", "</svg>"])
    assert drawing == '<img src="data:image/svg+xml;base64,PHN2Zz4KPC9zdmc+" alt="">'


def test_a_chapter_that_lacks_something_is_named():
    cells = [{"cell_type": "markdown", "metadata": {}, "source": "# Short\n\nWhy?"}]
    with pytest.raises(ValueError, match="Short: no cell has the tag main-point"):
        slides.deck({"cells": cells})
    cells.append({"cell_type": "markdown", "metadata": {"tags": ["main-point"]}, "source": "**The main point.** So."})
    with pytest.raises(ValueError, match="Short: a deck needs a question in the opening, a figure and an equation"):
        slides.deck({"cells": cells})
