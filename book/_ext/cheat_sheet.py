"""`{cheat-sheet}`: one line a row of the table, from book/data/cheat-sheet.yml and from the rows themselves."""

from pathlib import Path

from data_files import read, told_on_the_page, using
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

import rlhf_minimal

DATA = Path(__file__).resolve().parents[1] / "data" / "cheat-sheet.yml"
REST = ("normalize", "kl", "shape", "keep", "correct", "trust")
FIELDS = ("objective", "weight", "share", "why")


def cells(name):
    """column -> cell as the table prints it, empty where a row has none."""
    if name not in rlhf_minimal.ALGORITHMS:
        raise ValueError(f"the table has no row {name!r}")
    head, _, line = rlhf_minimal.table({name: rlhf_minimal.ALGORITHMS[name]}).splitlines()
    split = [[part.strip(" `") for part in text.strip("|").split("|")] for text in (head, line)]
    return dict(zip(*split, strict=True))


def pieces(formula):
    """A formula that may break where it has a semicolon."""
    parts = [nodes.math("", part.strip()) for part in formula.split(";")]
    return [node for part in parts for node in (part, nodes.Text("  "))]


def lines():
    """A list of cells a row, each of which is a list of nodes."""
    found = []
    for name, entry in read(DATA).items():
        shown = cells(name)
        if unfit := [key for key in FIELDS if not isinstance(entry.get(key), str)]:
            raise ValueError(f"{name} lacks {', '.join(unfit)}, or has something else than text there")
        rest = [shown[column] for column in REST if shown.get(column, "-") != "-"]
        found.append(
            [
                [nodes.strong("", name)],
                [nodes.literal("", shown["advantage"])],
                [nodes.math("", entry["objective"])],
                pieces(entry["weight"]),
                [nodes.math("", entry["share"])],
                [node for cell in rest for node in (nodes.Text("; "), nodes.literal("", cell))][1:],
                [nodes.Text(entry["why"])],
            ]
        )
    return found


class CheatSheet(SphinxDirective):
    @told_on_the_page
    def run(self):
        self.env.note_dependency(str(DATA))
        self.env.note_dependency(f"{rlhf_minimal.__path__[0]}/algorithms.py")
        head = ["", "A", "objective, to maximise", "weight on ∇ log π of a token", "its share", "further", "why"]
        with using(DATA):
            found = lines()
        group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in head), cols=len(head))
        thead, tbody = nodes.thead(), nodes.tbody()
        thead += nodes.row("", *(nodes.entry("", nodes.paragraph("", word)) for word in head))
        for line in found:
            tbody += nodes.row("", *(nodes.entry("", nodes.paragraph("", "", *cell)) for cell in line))
        group += [thead, tbody]
        table = nodes.table("", group, classes=["cheat-sheet"])
        return [nodes.container("", table, classes=["cheat-sheet"])]


def setup(app):
    app.add_directive("cheat-sheet", CheatSheet)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
