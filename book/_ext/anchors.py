"""Places of a page that others lead to, beside its headings and its exercises.

A cell that claims an idea, or has a tag that begins with "proof-", becomes an anchor of its page,
`#concept-group-advantage` or `#proof-loss-is-zero`, and every section gets a number, for claims in Markdown. What is
read and how it is checked: book/_pages/apparatus.py.
"""

from pathlib import Path

import nbformat
from docutils import nodes

import apparatus


def anchor(app, doctree):
    page = app.env.docname
    path = Path(app.env.doc2path(page))
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        found = apparatus.claims_of(page, nbformat.reads(text, as_version=4))
    else:
        found = apparatus.claims_of_text(page, text)
    standard = app.env.get_domain("std")
    sections = list(doctree.findall(nodes.section))
    cells = {node["cell_index"]: node for node in doctree.findall(nodes.container) if "cell_index" in node}
    for claim in found:
        if claim.kind == "code" and claim.cell in cells:
            where = claim.name
            if where not in cells[claim.cell]["ids"]:
                cells[claim.cell]["ids"].append(where)
        elif claim.heading_number < len(sections):
            where = sections[claim.heading_number]["ids"][0]
        else:
            continue
        standard.anonlabels[claim.target] = (page, where)
        standard.labels[claim.target] = (page, where, claim.heading)


def setup(app):
    app.connect("doctree-read", anchor, priority=900)  # after the notebook's own transforms
    return {"parallel_read_safe": True, "parallel_write_safe": True}
