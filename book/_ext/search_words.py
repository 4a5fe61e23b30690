"""What a reader types into the search field leads to the page that explains it, and to that page first.

The words stand in book/data/search.yml. Each becomes a main entry of the general index, which Sphinx's own search finds
before titles, objects and text; it works from a folder as it did. A query of several words first finds the page to
which one of them leads, and each result shows its sections: search_order.js.
"""

import json
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.util import logging

import numbering
from apparatus_pages import title_of_task
from data_files import ROOT, read, using

logger = logging.getLogger(__name__)
WORDS = ROOT / "book" / "data" / "search.yml"
ORDER = Path(__file__).with_name("search_order.js")


def words(path=WORDS):
    """Page -> [(word, anchor)], in the order of the file."""
    with using(path):
        found, places = {}, {}
        for place, entries in read(path).items():
            page, _, anchor = str(place).partition("#")
            if not any((ROOT / f"{page}{suffix}").is_file() for suffix in (".md", ".ipynb")):
                raise ValueError(f"there is no page {page}")
            if not isinstance(entries, list) or not all(isinstance(word, str) and word.strip() for word in entries):
                raise ValueError(f"{place}: expected a list of words")
            for word in entries:
                if word.lower() in places:
                    raise ValueError(f"{word!r} stands at {places[word.lower()]} and at {place}")
                places[word.lower()] = place
                found.setdefault(page, []).append((word, anchor))
    return found


def add_entries(app, doctree):
    page = app.env.docname
    app.env.note_dependency(str(WORDS))
    sections = list(doctree.findall(nodes.section))
    tasks = numbering.set_by(numbering.origins(page))  # exercises, by their titles
    entries = []
    for word, anchor in [*words().get(page, []), *((title_of_task(name), f"exercise-{name}") for name in tasks)]:
        if anchor and anchor not in doctree.ids:
            logger.warning("search.yml: %s has no section #%s", page, anchor, location=page)
        entries.append(("single", word, anchor, "main", None))
    if entries and sections:
        sections[0].insert(1, addnodes.index(entries=entries))  # where the search looks
        app.env.get_domain("index").entries.setdefault(page, []).extend(entries)  # and the general index


def order():
    """The script that orders what a search has found, with the words and their pages."""
    places = {word.lower(): page for page, entries in words().items() for word, _ in entries}
    return ORDER.read_text(encoding="utf-8").replace("words: WORDS,", f"words: {json.dumps(places, sort_keys=True)},")


def write_order(app):
    if app.builder.format == "html":
        path = Path(app.doctreedir) / ORDER.name
        path.write_text(order(), encoding="utf-8")
        app.config.html_search_scorer = str(path)


def setup(app):
    app.connect("builder-inited", write_order)
    app.connect("doctree-read", add_entries)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
