"""The book as EPUB: `python book/_tools/epub.py`, which is `make epub`. Two files, _build/rlhf-book-*.epub.

Sphinx's epub builder writes the pages first (`editions.py`). Here each becomes valid XHTML. A formula becomes MathML,
by the MathJax that the book ships, with its TeX as alternative text. What is written is read again: `check` says what
a reading system would refuse.
"""

import argparse
import mimetypes
import posixpath
import re
import sys
import unicodedata
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from bs4 import BeautifulSoup, Tag

sys.path.insert(0, str(Path(__file__).parent))

from editions import BUILT, EDITIONS, ROOT, TITLE, Part, link, note, parts, pictures, read, styles  # noqa: E402

XHTML = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE html>\n<html xmlns="http://www.w3.org/1999/xhtml" '
    'xmlns:epub="http://www.idpf.org/2007/ops" lang="en" xml:lang="en">\n<head><title>{title}</title>{css}</head>\n'
    "<body>{body}</body>\n</html>\n"
)
CONTAINER = """<?xml version="1.0"?>
<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>
<rootfile full-path="content.opf" media-type="application/oebps-package+xml"/></rootfiles></container>
"""
# What a reader who sees nothing may rely on.
ACCESSIBLE = [("accessMode", "textual"), ("accessMode", "visual"), ("accessModeSufficient", "textual")]
ACCESSIBLE += [("accessibilityHazard", "none")]
ACCESSIBLE += [("accessibilityFeature", one) for one in ("alternativeText", "MathML", "tableOfContents")]
# A parser of HTML writes every name in small letters; these of SVG have another form.
CAMEL = ("viewBox", "preserveAspectRatio", "gradientUnits", "gradientTransform", "clipPath", "linearGradient", "refX")
CAMEL += ("refY", "markerWidth", "markerHeight", "markerUnits", "patternUnits", "patternTransform", "textLength")
CAMEL += ("patternContentUnits", "clipPathUnits", "maskUnits", "spreadMethod", "lengthAdjust", "textPath")
BROWSER = {"script", "form", "input", "button", "select", "label", "output", "textarea", "iframe", "object"}
ROOM = 95  # characters of a table that stand beside each other on a page 600 wide
# How Unicode calls the letters of a variant of MathML; MathML Core knows them by no other way.
VARIANTS = {
    "double-struck": "DOUBLE-STRUCK",
    "bold": "BOLD",
    "script": "SCRIPT",
    "-tex-calligraphic": "SCRIPT",
    "fraktur": "FRAKTUR",
    "bold-italic": "BOLD ITALIC",
    "sans-serif": "SANS-SERIF",
    "monospace": "MONOSPACE",
}


def plain_mathml(said: str) -> str:
    """What MathJax wrote, as any reading system takes it: letters of a variant by their own characters."""
    said = re.sub(r"<!--.*?-->", "", said, flags=re.DOTALL)
    said = re.sub(r'\s(?:data-[\w-]+|class|id|style|href)="[^"]*"', "", said)
    said = re.sub(r'(<m[ino])( [^>]*?)?\smathvariant="([^"]+)"([^>]*)>([^<]*)<', _letters, said)
    said = re.sub(r'\smathvariant="(?!normal)[^"]*"', "", said)
    return re.sub(r">\s+<", "><", said.strip())


def _letters(found: re.Match[str]) -> str:
    tag, before, variant, behind, text = found.groups()
    if variant == "normal":
        return found[0]
    letters = BeautifulSoup(text, "html.parser").get_text()
    changed = "".join(_letter(c, VARIANTS.get(variant, "")) for c in letters)
    normal = ' mathvariant="normal"' if tag == "<mi" and len(changed) == 1 else ""
    return f"{tag}{before or ''}{normal}{behind}>{escape(changed)}<"


def _letter(c: str, variant: str) -> str:
    size = "CAPITAL" if c.isupper() else "SMALL"
    kind = f"DIGIT {unicodedata.name(c).split()[-1]}" if c.isdigit() else f"{size} {c.upper()}"
    for name in (f"MATHEMATICAL {variant} {kind}", f"{variant} {kind}"):
        try:
            return unicodedata.lookup(name)
        except KeyError:
            continue
    return c


def _drawing(data: bytes) -> bytes:
    """A drawing without what matplotlib writes and EPUB forbids: an address, a path (a blank) without `d`."""
    plain = re.sub(rb"<!DOCTYPE[^>]*>", b"", data)
    return re.sub(rb"<path(?![^>]*\sd=)([^>]*?)(/?>)", rb'<path d=""\1\2', plain)


def write(built: Path, contents: list[Part], target: Path, subtitle: str, told: Sequence[str] = ()) -> list[str]:
    """Write an EPUB of built pages.

    Args:
        built: Where Sphinx's builder wrote them, `name.xhtml`.
        contents: Parts and pages; the first page is the one that the book begins with.
        target: The file.
        subtitle: Which edition this is.
        told: What its reader has to know of it, on a page before the first.

    Returns:
        What `check` finds in it: nothing, if all is well.

    Raises:
        ValueError: If a page has not been built, or a formula cannot be set.
    """
    pages = read(built, contents, "mml")
    said = "".join(f"<p>{escape(one)}</p>" for one in told)
    style = '<link rel="stylesheet" type="text/css" href="pages.css"/>'
    front = f'<section class="title"><h1>{TITLE}</h1><p class="edition">{escape(subtitle)}</p>{said}</section>'
    files: dict[str, bytes] = {
        "pages.css": styles(built).encode(),
        "title.xhtml": XHTML.format(title=TITLE, css=style, body=front).encode(),
    }
    for name, page in pages.items():

        def address_of(target: str, fragment: str, here: str = posixpath.dirname(name)) -> str:
            return posixpath.relpath(f"{target}.xhtml", here or ".") + (f"#{quote(fragment)}" if fragment else "")

        link(name, page, pages, address_of)
        for _, file in pictures(name, page, built):
            data = (built / file).read_bytes()
            files[file] = _drawing(data) if file.endswith(".svg") else data
        page.formulas[:] = map(plain_mathml, page.formulas)
        for table in page.text.select("table"):
            if room(table, page.formulas) > ROOM:
                stack(table)
        style = f'<link rel="stylesheet" type="text/css" href="{"../" * name.count("/")}pages.css"/>'
        written = XHTML.format(title=escape(page.title), css=style, body=_camel(page.html()))
        files[f"{name}.xhtml"] = written.encode()
    titles = {f"{name}.xhtml": page.title for name, page in pages.items()}
    files["nav.xhtml"] = _nav(contents, titles).encode()
    files["content.opf"] = _package(files, ["title.xhtml", *(f"{name}.xhtml" for name in pages)], subtitle).encode()
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as book:
        book.writestr("mimetype", "application/epub+zip", zipfile.ZIP_STORED)
        book.writestr("META-INF/container.xml", CONTAINER)
        for name, data in files.items():
            book.writestr(name, data)
    return check(target)


def room(table: Tag, formulas: list[str]) -> int:
    """About how many characters the columns of a table need beside each other at least."""

    def word(cell: Tag) -> int:
        said = re.sub(
            "\ue000(\\d+)\ue001",
            lambda found: "x" * len(re.sub(r"<[^>]+>|&\w+;", "", formulas[int(found[1])])),
            cell.get_text(),
        )
        longest = max(map(len, re.split(r"\s+|(?<=[_-])", said)))
        return max(longest, 18 if "long" in cell.get("class", []) else 0) + 2  # as edition.css has it

    rows = [row.find_all(["th", "td"], recursive=False) for row in table.select("tr")]
    return sum(max(map(word, column)) for column in zip(*rows, strict=False))


def stack(table: Tag) -> None:
    """A table that is too wide for a reading system, which cannot scroll: a list for each of its rows.

    One without headings, or with cells that span several, stays a table.
    """
    rows = [row.find_all(["th", "td"], recursive=False) for row in table.select("tr")]
    heads, *rest = rows
    if not table.select("thead th") or len({len(row) for row in rows}) != 1 or table.select("[colspan], [rowspan]"):
        return
    names = [" ".join(cell.get_text().split()) for cell in heads]
    make = BeautifulSoup("", "html.parser").new_tag
    stacked = make("div", attrs={"class": "stacked"} | ({"id": table["id"]} if table.get("id") else {}))
    if caption := table.find("caption"):
        caption.name = "p"
        stacked.append(caption.extract())

    def line(kind: str, name: str, cell: Tag) -> Tag:
        made, column = (
            make(kind, attrs={"class": "row"} if kind == "p" else {}),
            make("span", attrs={"class": "column"}),
        )
        column.string = f"{name}: "
        for paragraph in cell.find_all("p"):
            paragraph.name = "span"
        made.extend([column, *list(cell.contents)] if name else list(cell.contents))
        return made

    for first, *others in rest:
        stacked.append(line("p", names[0], first))
        listed = make("ul")
        for name, cell in zip(names[1:], others, strict=True):
            if cell.get_text().strip() not in ("", "-", "–"):
                listed.append(line("li", name, cell))
        if listed.contents:
            stacked.append(listed)
    table.replace_with(stacked)


def _camel(text: str) -> str:
    for name in CAMEL:
        text = re.sub(rf"(?<=[\s</]){name.lower()}(?=[=\s>])", name, text)
    return text


def _nav(contents: list[Part], titles: dict[str, str]) -> str:
    def line(page: str) -> str:
        return f'<a href="{page}.xhtml">{escape(titles[page + ".xhtml"])}</a>'

    lines = []
    for part in contents:
        chapters: list[tuple[str, list[str]]] = []
        for page, below in part.pages:
            if below and chapters:
                chapters[-1][1].append(f"<li>{line(page)}</li>")
            else:
                chapters.append((line(page), []))
        listed = "".join(f"<li>{a}{f'<ol>{chr(10).join(b)}</ol>' if b else ''}</li>" for a, b in chapters)
        lines.append(f"<li><span>{escape(part.caption)}</span><ol>{listed}</ol></li>" if part.caption else listed)
    body = f'<nav epub:type="toc"><h1>Contents</h1><ol>{"".join(lines)}</ol></nav>'
    style = '<link rel="stylesheet" type="text/css" href="pages.css"/>'
    return XHTML.format(title="Contents", css=style, body=body)


def _package(files: dict[str, bytes], spine: list[str], subtitle: str) -> str:
    items, ids = [], {}
    for i, (name, data) in enumerate(files.items()):
        ids[name] = f"f{i}"
        kind = "application/xhtml+xml" if name.endswith(".xhtml") else mimetypes.guess_type(name)[0]
        has = ["nav"] * (name == "nav.xhtml") + ["mathml"] * (b"<math" in data) + ["svg"] * (b"<svg" in data)
        properties = f' properties="{" ".join(has)}"' if name.endswith(".xhtml") and has else ""
        items.append(f'<item id="f{i}" href="{name}" media-type="{kind}"{properties}/>')
    order = "".join(f'<itemref idref="{ids[name]}"/>' for name in spine)
    accessible = "".join(f'<meta property="schema:{name}">{value}</meta>' for name, value in ACCESSIBLE)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<package xmlns="http://www.idpf.org/2007/opf" version="3.0" '
        'unique-identifier="id" xml:lang="en"><metadata xmlns:dc="http://purl.org/dc/elements/1.1/">'
        f'<dc:identifier id="id">urn:rlhf-minimal:{escape(subtitle.replace(" ", "-"))}</dc:identifier>'
        f"<dc:title>{TITLE}: {escape(subtitle)}</dc:title><dc:language>en</dc:language>"
        f"<dc:creator>the rlhf-minimal authors</dc:creator><dc:rights>CC BY 4.0</dc:rights>{accessible}"
        f'<meta property="dcterms:modified">{now}</meta></metadata>\n<manifest>{chr(10).join(items)}</manifest>\n'
        f"<spine>{order}</spine></package>\n"
    )


def check(file: Path) -> list[str]:
    """What a reading system would refuse in an EPUB; epubcheck, where one has it, says more.

    The file of the type comes first and unpacked, every page is well-formed XML with ids that are its own, whatever the
    package lists is there and nothing else is, and every link and picture leads to something in the book. Pictures and
    formulas have words beside them, and nothing is there that only a browser can use.
    """
    wrong: list[str] = []
    with zipfile.ZipFile(file) as book:
        names = book.namelist()
        first = book.infolist()[0]
        if first.filename != "mimetype" or first.compress_type or book.read("mimetype") != b"application/epub+zip":
            wrong.append("the first file is not an unpacked mimetype")
        pages, ids = {}, {}
        for name in names:
            if name.endswith((".xhtml", ".opf", ".xml")):
                try:
                    pages[name] = ET.fromstring(book.read(name))  # noqa: S314 (written here)
                except ET.ParseError as problem:
                    wrong.append(f"{name}: {problem}")
    for name, page in pages.items():
        own = [element.get("id") for element in page.iter() if element.get("id")]
        ids[name] = set(own)
        wrong += [f"{name}: the id {one} stands twice" for one in ids[name] if own.count(one) > 1]
    package = pages.get("content.opf")
    listed = set() if package is None else {item.get("href") for item in package.iter() if item.tag.endswith("}item")}
    there = set(names) - {"mimetype", "META-INF/container.xml", "content.opf"}
    wrong += [f"{name} is listed and not there" for name in sorted(listed - there)]
    wrong += [f"{name} is there and not listed" for name in sorted(there - listed)]
    for name, page in pages.items():
        for element in page.iter():
            kind = element.tag.rpartition("}")[2]
            if kind in BROWSER:
                wrong.append(f"{name}: a {kind} is of use in a browser alone")
            if kind in ("img", "math") and element.get("alt", element.get("alttext")) is None:
                wrong.append(f"{name}: a {kind} has no words beside it")
            if urlsplit(element.get("src") or "").scheme not in ("", "data"):
                wrong.append(f"{name}: {element.get('src')} is on the network")
            for key in ("href", "src"):
                address = urlsplit(element.get(key) or "")
                if name == "content.opf" or address.scheme or not (address.path or address.fragment):
                    continue
                place = posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(address.path)))
                place = place if address.path else name
                if place not in names or (address.fragment and unquote(address.fragment) not in ids.get(place, ())):
                    wrong.append(f"{name}: {element.get(key)} leads nowhere")
    return wrong


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="The book as EPUB, from the pages that Sphinx's epub builder wrote.")
    parser.add_argument("--built", type=Path, default=BUILT, help="where they are")
    parser.add_argument("--out", type=Path, default=ROOT / "_build", help="the folder for the files")
    asked = parser.parse_args(words)
    wrong = []
    try:
        for edition, subtitle in EDITIONS.items():
            target = asked.out / f"rlhf-book-{edition}.epub"
            wrong += [
                f"{target.name}: {one}" for one in write(asked.built, parts(edition), target, subtitle, note(edition))
            ]
            print(f"{target}: {target.stat().st_size / 1e6:.1f} MB")
    except ValueError as problem:
        wrong.append(str(problem))
    print("\n".join(wrong), file=sys.stderr, end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
