"""The book as PDF: `python book/_tools/pdf.py`, which is `make pdf`. Two files, _build/rlhf-book-*.pdf.

Sphinx's epub builder writes the pages first (`editions.py`). Here they are joined to one page, with contents and with
links that lead to a place in it, and Chromium prints that: it makes the outline of the headings, and a tagged file that
a screen reader can read. Formulas are drawn by the MathJax that the book ships. The page is printed twice, because only
a printed file says on which sheet a chapter begins: the second time the contents have the numbers.
"""

import argparse
import posixpath
import re
import struct
import sys
import zlib
from collections.abc import Sequence
from html import escape
from itertools import accumulate
from pathlib import Path
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).parent))

from editions import (  # noqa: E402
    BUILT,
    EDITIONS,
    ROOT,
    TITLE,
    Page,
    Part,
    chromium,
    link,
    note,
    parts,
    pictures,
    read,
    styles,
)

WIDTH = 662  # of the text, in CSS pixels: A4 without its margins of 17.5 mm
TURNED = 984  # of a sheet that is turned
PRINTED = """
@page { size: A4; margin: 18mm 17.5mm 20mm; }
@page turned { size: A4 landscape; margin: 18mm 17.5mm 20mm; }
.turned { page: turned; }
body { font: 10.5pt/1.45 "Liberation Serif", "Times New Roman", serif; margin: 0; color: #111; }
/* The outline joins the lines of a heading: without pre-wrap there is no space between them. */
h1, h2, h3, h4, h5, h6 { white-space: pre-wrap; }
h1, h2, h3, h4, h5, h6, summary, th { font-family: "Liberation Sans", Arial, sans-serif; }
section.page, section.part > h1 { break-before: page; }
section.part > h1 { font-size: 24pt; margin: 0 0 .6em; }
section.part > h1 + section.page { break-before: avoid; }
h2 { font-size: 19pt; } h3 { font-size: 14pt; } h4 { font-size: 12pt; } h5, h6 { font-size: 10.5pt; }
p, li { orphans: 2; widows: 2; }
/* Room below the last line of a page is a sheet of its own when nothing is left of this one. */
section > ul:last-child, section > ul:last-child > li:last-child > p:last-child { margin-bottom: 0; }
section > p:last-child { break-before: avoid; } /* a last line does not stand on a sheet of its own */
a { color: #14507f; text-decoration: none; }
svg.family-tree { max-height: 215mm; break-inside: avoid; } /* under its heading, on one sheet */
pre, code { font-family: "DejaVu Sans Mono", "Liberation Mono", monospace; }
.wide, div.math { overflow: visible; }
section.title { text-align: center; padding-top: 25%; }
section.title h1 { font-size: 30pt; break-before: auto; }
section.title p:not(.edition) { max-width: 30em; margin: .6em auto; text-align: left; }
section.title p.edition { font-size: 14pt; margin-bottom: 4em; }
nav.contents { break-before: page; }
nav.contents li { display: flex; flex-wrap: wrap; gap: .5em; }
nav.contents li > a { flex: 1; } nav.contents li > ol { flex-basis: 100%; }
nav.contents .part { font-weight: bold; margin-top: .6em; }
"""
FOOT = """<div style="font: 8pt sans-serif; width: 100%; text-align: center; color: #555">
<span class="pageNumber"></span></div>"""
# What is wider than a sheet is made smaller: a table as a whole, so that its columns stay beside each other.
# One that would become too small to read has a sheet of its own, turned by a quarter.
FIT = """(turned) => {
  let shrunk = 0;
  for (const wide of document.querySelectorAll("table, pre, div.math > svg")) {
    const room = wide.parentElement.clientWidth, own = wide.scrollWidth || wide.getBoundingClientRect().width;
    if (!room || own <= room + 1) continue;
    const turn = wide.tagName === "TABLE" && room / own < 0.75;
    if (turn) wide.parentElement.classList.add("turned");
    wide.style.zoom = Math.min(1, (turn ? turned : room) / own);
    shrunk += 1;
  }
  return shrunk;
}"""


def place(page: str, fragment: str = "") -> str:
    """The id, in the joined page, of a page or of a place in it.

    Example:
        >>> place("notebooks/grpo", "fig-clip"), place("book/index")
        ('notebooks-grpo--fig-clip', 'book-index--')
    """
    return f"{page.replace('/', '-')}--{fragment}"


def joined(
    built: Path,
    contents: list[Part],
    subtitle: str,
    numbers: dict[str, int],
    pages: dict[str, Page],
    told: Sequence[str] = (),
) -> str:
    """All pages as one.

    Args:
        built: Where Sphinx's builder wrote them.
        contents: Parts and pages.
        subtitle: Which edition this is.
        numbers: place -> the number of the sheet on which it begins; empty as long as nobody knows.
        pages: What `prepared` says.
        told: What the reader has to know of the edition, on its first sheet.
    """

    def line(page: str) -> str:
        number = f"<span>{numbers[place(page)]}</span>" if place(page) in numbers else ""
        return f'<a href="#{quote(place(page))}">{escape(pages[page].title)}</a>{number}'

    listed, texts = [], []
    for part in contents:
        lines = "".join(
            f'<li class="{"below" if below else "chapter"}">{line(page)}</li>' for page, below in part.pages
        )
        listed.append(f'<li class="part">{escape(part.caption)}</li>' * bool(part.caption) + lines)
        inside = []
        for page, below in part.pages:
            deeper = 1 + below
            text = re.sub(
                r"<(/?)h([1-6])\b",
                lambda found, by=deeper: f"<{found[1]}h{min(int(found[2]) + by, 6)}",
                pages[page].html(),
            )
            inside.append(f'<section class="page" id="{place(page)}">{text}</section>')
        caption = f"<h1>{escape(part.caption)}</h1>" if part.caption else ""
        texts.append(f'<section class="part">{caption}{"".join(inside)}</section>')
    said = "".join(f"<p>{escape(one)}</p>" for one in told)
    title = f'<section class="title"><h1>{TITLE}</h1><p class="edition">{escape(subtitle)}</p>{said}</section>'
    nav = f'<nav class="contents"><h1>Contents</h1><ol>{"".join(listed)}</ol></nav>'
    head = f'<meta charset="utf-8"><title>{TITLE}: {escape(subtitle)}</title><style>{styles(built)}{PRINTED}</style>'
    return f'<!DOCTYPE html><html lang="en"><head>{head}</head><body>{title}{nav}{"".join(texts)}</body></html>'


def prepared(built: Path, contents: list[Part]) -> dict[str, Page]:
    """The pages, with ids, links and pictures as the joined page needs them.

    Raises:
        ValueError: If a page has not been built, or a formula cannot be set.
    """
    pages = read(built, contents, "svg")
    for name, page in pages.items():
        link(name, page, pages, lambda target, fragment: f"#{quote(place(target, fragment))}")
        for picture, file in pictures(name, page, built):
            picture["src"] = quote(posixpath.normpath(file))
        for tag in page.text.select("[id]"):
            tag["id"] = place(name, tag["id"])
        for heading in page.text.select("h1, h2, h3, h4, h5, h6"):
            for said in list(heading.find_all(string=True)):
                said.replace_with(re.sub(r"\s+", " ", said))
        for tag in page.text.select("[for], [aria-labelledby], [aria-describedby]"):
            for key in ("for", "aria-labelledby", "aria-describedby"):
                tag.attrs.pop(key, None)
    return pages


def sheets(pdf: bytes) -> dict[str, int]:
    """The sheet, counted from 1, on which each place begins that a link leads to; as Chromium writes PDF.

    Raises:
        ValueError: If the file is written in another way.
    """
    kids = {}  # number of an object -> its text
    for found in re.finditer(rb"(?:^|\n)(\d+) 0 obj\n(.*?)\nendobj", pdf, re.DOTALL):
        kids[int(found[1])] = found[2]
    order: list[int] = []

    def walk(number: int) -> None:
        text = kids[number]
        if re.search(rb"/Type\s*/Pages\b", text):
            inside = re.search(rb"/Kids\s*\[(.*?)\]", text, re.DOTALL)
            for child in re.findall(rb"(\d+) 0 R", inside[1] if inside else b""):
                walk(int(child))
        else:
            order.append(number)

    root = re.search(rb"/Type\s*/Catalog.*?/Pages (\d+) 0 R", pdf, re.DOTALL)
    if root is None:
        raise ValueError("this PDF has no catalogue that can be read: the contents are left without numbers")
    walk(int(root[1]))
    at = {number: i for i, number in enumerate(order, start=1)}
    found = re.findall(rb"/([\w.%#-]+)\s*\[(\d+) 0 R\s*/XYZ", pdf)
    return {name.decode(): at[int(page)] for name, page in found if int(page) in at}


def packed(pdf: bytes) -> bytes:
    """The same file at half its size: objects that Chromium writes as plain text become compressed streams.

    Most of them tell a screen reader what each piece of text is, some hundred thousand in a book. PDF 1.5 allows to
    pack objects that are no streams themselves, and the table of where each stands; what they say does not change.

    Raises:
        ValueError: If the file is written in another way.
    """
    start = re.search(rb"startxref\s+(\d+)\s+%%EOF\s*$", pdf)
    table = start and re.match(rb"xref\s+0 (\d+)\s+", pdf[int(start[1]) :])
    trailer = start and re.search(rb"trailer\s*<<(.*)>>\s*startxref", pdf[int(start[1]) :], re.DOTALL)
    if not (start and table and trailer):
        raise ValueError("this PDF has no plain table of its objects: print it with another version of Chromium")
    first, count = int(start[1]) + table.end(), int(table[1])
    lines = [pdf[first + 20 * i : first + 20 * (i + 1)] for i in range(count)]
    at = {i: int(line[:10]) for i, line in enumerate(lines) if line[17:18] == b"n"}
    ends = dict(zip(sorted(at.values()), [*sorted(at.values())[1:], int(start[1])], strict=True))
    body = {i: pdf[place_ : ends[place_]].strip() for i, place_ in at.items()}
    inside = {i: re.sub(rb"^\d+ 0 obj\s*|\s*endobj$", b"", text) for i, text in body.items()}
    plain = [i for i, text in inside.items() if not text.endswith(b"endstream")]
    out = bytearray(b"%PDF-1.5\n%\xe2\xe3\xcf\xd3\n")
    rows = {0: (0, 0, 65535)}  # object -> (1, where it stands, 0), or (2, in which stream, as which of its objects)

    def add(number: int, said: bytes) -> None:
        rows[number] = (1, len(out), 0)
        out.extend(b"%d 0 obj\n%b\nendobj\n" % (number, said))

    def stream(about: bytes, data: bytes) -> bytes:
        data = zlib.compress(data, 9)
        return b"<<%b /Filter /FlateDecode /Length %d>> stream\n%b\nendstream" % (about, len(data), data)

    for i in inside.keys() - set(plain):
        add(i, inside[i])
    for number, k in enumerate(range(0, len(plain), 1000), start=count):
        group = plain[k : k + 1000]
        offsets = accumulate((len(inside[i]) + 1 for i in group[:-1]), initial=0)
        head = b" ".join(b"%d %d" % pair for pair in zip(group, offsets, strict=True)) + b"\n"
        about = b"/Type /ObjStm /N %d /First %d" % (len(group), len(head))
        add(number, stream(about, head + b"\n".join(inside[i] for i in group)))
        rows |= {i: (2, number, j) for j, i in enumerate(group)}
    last = max(rows) + 1
    rows[last] = (1, len(out), 0)
    places = b"".join(struct.pack(">BIH", *rows.get(i, (0, 0, 0))) for i in range(last + 1))
    roots = b" ".join(re.findall(rb"/(?:Root|Info) \d+ 0 R", trailer[1]))
    where = len(out)
    add(last, stream(b"/Type /XRef /W [1 4 2] /Size %d %b" % (last + 1, roots), places))
    return bytes(out + b"startxref\n%d\n%%%%EOF\n" % where)


def write(built: Path, contents: list[Part], target: Path, subtitle: str, told: Sequence[str] = ()) -> int:
    """Print an edition, with what its reader has to know of it, and say how many sheets it has.

    Raises:
        ValueError: If a page has not been built, a formula cannot be set, or there is no Chromium.
    """
    pages = prepared(built, contents)
    source = built / f"joined-{target.stem}.html"
    target.parent.mkdir(parents=True, exist_ok=True)
    numbers: dict[str, int] = {}
    with chromium() as browser:
        for _ in range(2):
            source.write_text(joined(built, contents, subtitle, numbers, pages, told), encoding="utf-8")
            page = browser.new_page(viewport={"width": WIDTH, "height": 900})
            page.goto(source.resolve().as_uri(), timeout=600_000)
            page.emulate_media(media="print")
            page.evaluate(FIT, TURNED)
            page.pdf(
                path=target,
                prefer_css_page_size=True,
                print_background=True,
                tagged=True,
                outline=True,
                display_header_footer=True,
                header_template="<span></span>",
                footer_template=FOOT,
            )
            page.close()
            numbers = sheets(target.read_bytes())
    source.unlink()
    target.write_bytes(packed(target.read_bytes()))
    return max(numbers.values(), default=0)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="The book as PDF, from the pages that Sphinx's epub builder wrote.")
    parser.add_argument("--built", type=Path, default=BUILT, help="where they are")
    parser.add_argument("--out", type=Path, default=ROOT / "_build", help="the folder for the files")
    parser.add_argument("--edition", choices=EDITIONS, action="append", help="one of them (default: both)")
    asked = parser.parse_args(words)
    try:
        for edition in asked.edition or EDITIONS:
            target = asked.out / f"rlhf-book-{edition}.pdf"
            count = write(asked.built, parts(edition), target, EDITIONS[edition], note(edition))
            print(f"{target}: {target.stat().st_size / 1e6:.1f} MB, the last place stands on sheet {count}")
    except ValueError as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
