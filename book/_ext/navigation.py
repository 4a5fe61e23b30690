"""The list of contents beside every page, short enough that the page one reads stands in it without scrolling.

It is drawn from `_toc.yml` and book/data/navigation.yml: five words, then every part of the book as one line. Only the
part of the page that is open is unfolded. An entry is a short title; "in depth" stands beside its chapter; what stands
below another page, as the solutions below the exercises, is one line more, folded unless one is there. Works without
JavaScript; `book/_templates/sbt-sidebar-nav.html` puts it in the theme's place.
"""

from functools import cache
from html import escape

from data_files import ROOT, pages_below, read, title_of, using
from numbering import DEPTH, chapters

NAVIGATION = ROOT / "book" / "data" / "navigation.yml"
LONGEST = 26  # characters of a title, so that it takes one line


@cache
def data():
    """What the file says: {"words": {word: page}, "titles": {page: title}}."""
    with using(NAVIGATION):
        found = read(NAVIGATION)
        for page in (*found["words"].values(), *found["titles"]):
            if not any((ROOT / f"{page}{suffix}").is_file() for suffix in (".md", ".ipynb")):
                raise ValueError(f"there is no page {page}")
        long = [title for title in found["titles"].values() if len(title) > LONGEST]
        if long:
            raise ValueError(f"{long[0]!r} has more than {LONGEST} characters: it would take two lines")
    return found


def title(page):
    """What an entry says, without its number."""
    if page.endswith(DEPTH):
        return "in depth"
    if page in data()["titles"]:
        return data()["titles"][page]
    return title_of(page)


def words(current, link):
    """The five words; `link` makes an address of a page."""
    items = "".join(
        f'<a href="{escape(link(page))}"{_here(page, current)}>{escape(word)}</a>'
        for word, page in data()["words"].items()
    )
    return f'<nav class="five-words" aria-label="Ways into the book">{items}</nav>'


def contents(current, link):
    """The list of contents of a page of the book.

    Args:
        current: The page that is open; one that is not in the book unfolds nothing.
        link: Makes an address of a page.
    """
    toc = read(ROOT / "_toc.yml")
    parts = []
    for part in toc["parts"]:
        pages = pages_below(part)
        is_open = " open" if current in pages else ""
        entries = "".join(_entry(entry, current, link) for entry in part["chapters"])
        parts.append(
            f"<details{is_open}><summary>{escape(part['caption'])}</summary>"
            f'<ul class="nav bd-sidenav">{entries}</ul></details>'
        )
    return f'<a href="{escape(link(toc["root"]))}"{_here(toc["root"], current)}>Front page</a>{"".join(parts)}'


def _here(page, current):
    return ' class="active" aria-current="page"' if page == current else ""


def _anchor(page, current, link, text=None):
    number = f'<span class="number">{chapters()[page]}</span> ' if page in chapters() and text is None else ""
    return f'<a href="{escape(link(page))}"{_here(page, current)}>{number}{escape(text or title(page))}</a>'


def _entry(node, current, link):
    page, *under = pages_below(node)
    found = _anchor(page, current, link)
    depths, others = [p for p in under if p.endswith(DEPTH)], [p for p in under if not p.endswith(DEPTH)]
    for depth in depths:
        here = _here(depth, current).replace("active", "depth active") or ' class="depth"'
        said = f'<span class="visually-hidden">{escape(title(page))} </span>in depth'
        found += f'<a href="{escape(link(depth))}"{here}>{said}</a>'
    if others:
        inside = "".join(f"<li>{_anchor(p, current, link, _below_title(p))}</li>" for p in others)
        name = others[0].split("/")[-2].capitalize()
        is_open = " open" if current in others else ""
        found += f"<details{is_open}><summary>{escape(name)}</summary><ul>{inside}</ul></details>"
    return f"<li>{found}</li>"


def _below_title(page):
    """A page below another is named as the chapter that it belongs to."""
    chapter = f"notebooks/{page.split('/')[-1]}"
    return f"{chapters()[chapter]} {title(chapter)}" if chapter in chapters() else title(page)


def add(app, pagename, templatename, context, doctree):
    context["five_words"] = words(pagename, context["pathto"])
    context["contents"] = contents(pagename, context["pathto"])


def setup(app):
    app.connect("html-page-context", add)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
