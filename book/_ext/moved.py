"""Old anchors lead on: a page from which a section has moved sends the reader after it.

What has moved is told in `book/data/moved.yml`. Each old page gets a few lines of script that look at the address; a
target that does not exist, or an anchor that is still where it was, is a warning of the build. A page that is no longer
in the book, and has an entry for the empty anchor, is built as a sentence with a link.
"""

import json
from functools import cache, partial
from html import escape
from pathlib import Path

import nbformat
from apparatus import ROOT, claims_of, claims_of_text, headings_in
from data_files import read, using
from docutils import nodes
from equation_index import labels_in
from sphinx.util import logging

MOVED = ROOT / "book" / "data" / "moved.yml"
SCRIPT = """\
(() => {
  const moved = %s;
  const follow = () => {
    const target = moved[decodeURIComponent(location.hash.slice(1))];
    if (target) location.replace(target);
  };
  addEventListener("hashchange", follow);
  follow();
})();"""


def moved(path: Path = MOVED) -> dict[str, dict[str, tuple[str, str]]]:
    """Old page, old anchor: the page and the anchor where it is now.

    Raises:
        ValueError: an entry that names no page and anchor.
    """
    found: dict[str, dict[str, tuple[str, str]]] = {}
    with using(path):
        for page, anchors in read(path).items():
            for old, target in anchors.items():
                now, mark, anchor = str(target).partition("#")
                if not (now and mark and anchor):
                    raise ValueError(f"{page}: {old} leads to {target!r}, expected page#anchor")
                found.setdefault(page, {})[old] = (now, anchor)
    return found


def gone() -> dict[str, tuple[str, str]]:
    """Pages that have moved as a whole and left no source behind: the page and the anchor where they are now."""
    left = {page: anchors[""] for page, anchors in moved().items() if "" in anchors}
    return {page: now for page, now in left.items() if not (ROOT / f"{page}.md").is_file()}


def anchors_of(page: str) -> list[str]:
    """The anchors of a page as its source gives them: its headings, its equations, and the ideas that it claims."""
    notebook, text = ROOT / f"{page}.ipynb", ROOT / f"{page}.md"
    if notebook.is_file():
        cells = nbformat.read(notebook, as_version=4)
        parts = [cell.source for cell in cells.cells if cell.cell_type == "markdown"]
        claims = claims_of(page, cells)
    elif text.is_file():
        parts = [text.read_text(encoding="utf-8")]
        claims = claims_of_text(page, parts[0])
    elif page in gone():
        return []
    else:
        raise ValueError(f"{page} is no page of the book")
    headings = [nodes.make_id(heading) for part in parts for heading in headings_in(part)]
    # Sphinx puts this word before an equation's label.
    equations = [nodes.make_id(f"equation-{label}") for part in parts for label in labels_in(part)]
    return [*headings, *equations, *(claim.name for claim in claims if claim.kind == "code")]


def script_of(page: str, uri_of) -> str | None:
    """The script of an old page, or None where nothing moved; `uri_of(page)` is an address relative to this page."""
    entries = moved().get(page)
    if not entries:
        return None
    addresses = {old: f"{uri_of(now) if now != page else ''}#{anchor}" for old, (now, anchor) in entries.items()}
    return SCRIPT % json.dumps(addresses, indent=1)


def lead_on(app, pagename, templatename, context, doctree):
    """Give an old page its script."""
    body = script_of(pagename, lambda page: app.builder.get_relative_uri(pagename, page))
    if body:
        app.add_js_file(None, body=body)


def signposts(app):
    """A page for each address whose page is gone: a sentence with a link, and the script like any other."""
    for page, (now, anchor) in gone().items():
        address = f"{app.builder.get_relative_uri(page, now)}#{anchor}"
        title = env_title(app.env, now)
        body = f'<section><h1>Moved</h1><p>This page is now a part of <a href="{address}">{title}</a>.</p></section>'
        yield page, {"title": "Moved", "body": body}, "page.html"


def env_title(env, page):
    """The title of a page as plain text, safe in HTML."""
    return escape(env.titles[page].astext())


def check(app, env):
    """Warn of a target that is not there, and of an anchor that has not moved."""
    log = logging.getLogger(__name__)
    ids = cache(partial(_ids, env))
    for page, entries in moved().items():
        for old, (now, anchor) in entries.items():
            if now not in env.found_docs or anchor not in ids(now):
                log.warning(f"{MOVED.name}: {page}#{old} leads to {now}#{anchor}, which does not exist")
            if page not in gone() and old in ids(page):
                log.warning(f"{MOVED.name}: {page}#{old} is still there")


def _ids(env, page):
    return {name for node in env.get_doctree(page).findall(nodes.Element) for name in node["ids"]}


def setup(app):
    app.connect("html-page-context", lead_on)
    app.connect("html-collect-pages", signposts)
    app.connect("env-check-consistency", check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
