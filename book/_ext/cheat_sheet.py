"""`{cheat-sheet}`: one line a row of the table, from book/data/cheat-sheet.yml and from the rows themselves."""

from pathlib import Path

import yaml
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

import rlhf_minimal

DATA = Path(__file__).resolve().parents[1] / "data" / "cheat-sheet.yml"
REST = ("normalize", "kl", "shape", "keep")


def cells(name):
    """column -> cell as the table prints it, empty where a row has none."""
    head, _, line = rlhf_minimal.table({name: rlhf_minimal.ALGORITHMS[name]}).splitlines()
    split = [[part.strip(" `") for part in text.strip("|").split("|")] for text in (head, line)]
    return dict(zip(*split, strict=True))


def pieces(formula):
    """A formula that may break where it has a semicolon."""
    parts = [nodes.math("", part.strip()) for part in formula.split(";")]
    return [node for part in parts for node in (part, nodes.Text("  "))]


class CheatSheet(SphinxDirective):
    def run(self):
        self.env.note_dependency(str(DATA))
        self.env.note_dependency(f"{rlhf_minimal.__path__[0]}/algorithms.py")
        head = ["", "A", "objective, to maximise", "weight on ∇ log π of a token", "its share", "further", "why"]
        lines = []
        for name, entry in yaml.safe_load(DATA.read_text(encoding="utf-8")).items():
            shown = cells(name)
            rest = [shown[column] for column in REST if shown.get(column, "-") != "-"]
            lines.append(
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
        group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in head), cols=len(head))
        thead, tbody = nodes.thead(), nodes.tbody()
        thead += nodes.row("", *(nodes.entry("", nodes.paragraph("", word)) for word in head))
        for line in lines:
            tbody += nodes.row("", *(nodes.entry("", nodes.paragraph("", "", *cell)) for cell in line))
        group += [thead, tbody]
        table = nodes.table("", group, classes=["cheat-sheet"])
        return [nodes.container("", table, classes=["cheat-sheet"])]


def setup(app):
    app.add_directive("cheat-sheet", CheatSheet)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
