"""What changes from one row of the table to another, printed from `rlhf_minimal.diff` when the book is built.

```{algorithm-diff} grpo dapo
```

```{algorithm-distances}
```
"""

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

import rlhf_minimal


def changes(first, second):
    """[(column, before, after)] as `diff` says it."""
    text = rlhf_minimal.diff(first, second)
    parts = (part.split(": ", 1) for part in text.split("; ") if part)
    return [(column, *cells.split(" -> ")) for column, cells in parts]


def table(head, rows, classes):
    """A plain table; every entry is a list of inline nodes."""
    group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in head), cols=len(head))
    thead, tbody = nodes.thead(), nodes.tbody()
    for body, lines in ((thead, [head]), (tbody, rows)):
        for line in lines:
            body += nodes.row("", *(nodes.entry("", nodes.paragraph("", "", *cell)) for cell in line))
    group += [thead, tbody]
    return nodes.container("", nodes.table("", group, classes=classes), classes=classes)


def cell(text):
    return [nodes.Text("-")] if text == "-" else [nodes.literal("", text)]


class AlgorithmDiff(SphinxDirective):
    """The changed cells, one line each."""

    required_arguments = 2

    def run(self):
        first, second = self.arguments
        try:
            changed = changes(first, second)
        except ValueError as problem:
            raise self.error(f"algorithm-diff: {problem}") from problem
        note_dependencies(self.env)
        head = [[nodes.Text("column")], [nodes.literal("", first)], [nodes.literal("", second)]]
        rows = [[[nodes.Text(column)], cell(before), cell(after)] for column, before, after in changed]
        return [table(head, rows, ["algorithm-diff"])]


class AlgorithmDistances(SphinxDirective):
    """How many cells any two rows do not share."""

    def run(self):
        note_dependencies(self.env)
        names = list(rlhf_minimal.ALGORITHMS)
        head = [[nodes.Text("")], *([nodes.literal("", name)] for name in names)]
        rows = [
            [
                [nodes.literal("", one)],
                *([nodes.Text(str(len(changes(one, two))) if one != two else "")] for two in names),
            ]
            for one in names
        ]
        return [table(head, rows, ["algorithm-distances"])]


def note_dependencies(env):
    for file in ("algorithms.py", "anatomy.py", "objective.py"):
        env.note_dependency(f"{rlhf_minimal.__path__[0]}/{file}")


def setup(app):
    app.add_directive("algorithm-diff", AlgorithmDiff)
    app.add_directive("algorithm-distances", AlgorithmDistances)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
