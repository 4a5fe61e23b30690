"""Places of a page that others lead to, beside its headings.

A cell that claims an idea, or has a tag that begins with "proof-", becomes an anchor of its page,
`#concept-group-advantage` or `#proof-loss-is-zero`, and so does an exercise, `#exercise-grpo-advantage`. What is
read and how it is checked: book/_pages/apparatus.py.
"""

from pathlib import Path

import nbformat
from docutils import nodes
from sphinx import addnodes

import apparatus
from apparatus_pages import title_of_task


def anchor(app, doctree):
    """Give every claiming cell and every exercise an anchor, and every section a number, for claims in Markdown."""
    page = app.env.docname
    path = Path(app.env.doc2path(page))
    if path.suffix == ".ipynb":
        notebook = nbformat.read(path, as_version=4)
        found = apparatus.claims_of(page, notebook)
    else:
        notebook = None
        found = apparatus.claims_of_text(page, path.read_text(encoding="utf-8"))
    standard = app.env.get_domain("std")
    sections = list(doctree.findall(nodes.section))
    cells = {node["cell_index"]: node for node in doctree.findall(nodes.container) if "cell_index" in node}
    for claim in found:
        if claim.kind == "code" and claim.cell in cells:
            node = cells[claim.cell]
            if claim.name not in node["ids"]:
                node["ids"].append(claim.name)
            where = claim.name
            target = f"{page}#{claim.name}"
        elif claim.heading_number < len(sections):
            where = sections[claim.heading_number]["ids"][0]
            target = f"{page}#section-{claim.heading_number}"
        else:
            continue
        standard.anonlabels[target] = (page, where)
        standard.labels[target] = (page, where, claim.heading)
    for number, cell in enumerate(notebook.cells if notebook else ()):
        match str(cell.metadata.get("from", "")).split("/"):
            case [("exercise" | "bug" | "whiteboard"), name, ("stub" | "symptom")] if (
                number in cells and apparatus.pages_of_exercises().get(name) == page
            ):
                where = f"exercise-{name}"
                head_of_statement(cells[number])["ids"].append(where)
                if title := title_of_task(name):  # the search finds it by its title
                    entry = ("single", title, where, "main", None)
                    sections[0].insert(1, addnodes.index(entries=[entry]))
                    app.env.get_domain("index").entries.setdefault(page, []).append(entry)
                standard.anonlabels[f"{page}#{where}"] = (page, where)
                standard.labels[f"{page}#{where}"] = (page, where, name)


def head_of_statement(cell):
    """The paragraph with which the statement above an exercise's code begins."""
    above = cell.parent.children[: cell.parent.index(cell)]
    for node in reversed(above):
        if isinstance(node, nodes.paragraph) and node.astext().startswith(("Exercise: ", "Find the bug: ")):
            return node
    return cell


def setup(app):
    app.connect("doctree-read", anchor, priority=900)  # after the notebook's own transforms
    return {"parallel_read_safe": True, "parallel_write_safe": True}
