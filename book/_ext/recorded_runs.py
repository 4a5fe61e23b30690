"""`{recorded-runs}`: a line an arm of a file under notebooks/results/, with mean, smallest and largest of its seeds.

```{recorded-runs} ppo-rlhf
:columns: kl | KL (nats); gold | true score
```

A column is the name of a number in the record, a bar, and the words of the table's head.
"""

import json
import statistics
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

RESULTS = Path(__file__).resolve().parents[2] / "notebooks" / "results"


def columns(text):
    """name -> head of a column."""
    return dict((part.strip() for part in column.split("|", 1)) for column in text.split(";"))


def lines(record, names):
    """One list of cells an arm, in the order of the record: its name, then mean [smallest, largest] of each number."""
    arms = {}
    for run in record["runs"]:
        arms.setdefault(run["arm"], []).append(run)
    return [[arm, *(spread([run[name] for run in runs]) for name in names)] for arm, runs in arms.items()]


def spread(values):
    """`8.17 [8.02, 8.31]`"""
    return f"{statistics.mean(values):.2f} [{min(values):.2f}, {max(values):.2f}]"


class RecordedRuns(SphinxDirective):
    required_arguments = 1
    option_spec = {"columns": directives.unchanged_required}  # noqa: RUF012

    def run(self):
        path = RESULTS / f"{self.arguments[0]}.json"
        self.env.note_dependency(str(path))
        record = json.loads(path.read_text(encoding="utf-8"))
        chosen = columns(self.options["columns"])
        seeds = len({run["seed"] for run in record["runs"]})
        group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in ["", *chosen]), cols=1 + len(chosen))
        head, body = nodes.thead(), nodes.tbody()
        head += row(["arm", *chosen.values()])
        for cells in lines(record, chosen):
            body += row(cells)
        group += [head, body]
        versions = ", ".join(f"{name} {number}" for name, number in record["versions"].items())
        note = nodes.paragraph("", f"Mean [smallest, largest] of {seeds} seeds. Recorded with {versions}, by ")
        note += [nodes.literal("", record["command"]), nodes.Text(".")]
        return [nodes.table("", group), note]


def row(cells):
    return nodes.row("", *(nodes.entry("", nodes.paragraph("", cell)) for cell in cells))


def setup(app):
    app.add_directive("recorded-runs", RecordedRuns)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
