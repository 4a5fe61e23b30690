"""`{recorded-runs}`: a line an arm of a file under notebooks/results/, with mean, smallest and largest of its seeds.

```{recorded-runs} ppo-rlhf
:columns: kl | KL (nats); gold | true score
```

A column is the name of a number in the record, a bar, and the words of the table's head.
"""

import math
import statistics
from pathlib import Path

from data_files import read, told_on_the_page, using
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

RESULTS = Path(__file__).resolve().parents[2] / "notebooks" / "results"


def path_of(name):
    """The file of a record."""
    known = sorted(path.stem for path in RESULTS.glob("*.json"))
    if name not in known:
        raise ValueError(f"there is no record {name!r} in {RESULTS.name}/; there are {', '.join(known)}")
    return RESULTS / f"{name}.json"


def columns(text):
    """name -> head of a column."""
    found = {}
    for column in text.split(";"):
        name, bar, head = (part.strip() for part in column.partition("|"))
        if not (name and bar and head):
            raise ValueError(
                f"`:columns:` holds {column.strip()!r}; a column is the name of a number, a bar and the words of the "
                "table's head"
            )
        if name in found:
            raise ValueError(f"`:columns:` names {name!r} twice")
        found[name] = head
    return found


def lines(record, names):
    """One list of cells an arm, in the order of the record: its name, then mean [smallest, largest] of each number."""
    arms = {}
    for run in record["runs"]:
        arms.setdefault(str(run["arm"]), []).append(run)
    if not arms:
        raise ValueError("no run is recorded")
    seeds = {arm: sorted(run["seed"] for run in runs) for arm, runs in arms.items()}
    first, wanted = next(iter(seeds.items()))
    for arm, found in seeds.items():
        if found != wanted or len(set(found)) < len(found):
            raise ValueError(f"every arm should have the same seeds, once; {first} has {wanted}, {arm} has {found}")
    return [[arm, *(spread([number(run, name) for run in runs]) for name in names)] for arm, runs in arms.items()]


def number(run, name):
    """A number of a run, by name."""
    where = f"the run of arm {run['arm']}, seed {run['seed']}"
    if name not in run:
        known = [key for key, value in run.items() if isinstance(value, int | float) and key not in ("arm", "seed")]
        raise ValueError(f"{where} has no {name!r}; its numbers are {', '.join(known)}")
    value = run[name]
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise ValueError(f"{where}: {name!r} should be a finite number, and is {str(value)[:40]}")
    return value


def spread(values):
    """`8.17 [8.02, 8.31]`"""
    return f"{statistics.mean(values):.2f} [{min(values):.2f}, {max(values):.2f}]"


class RecordedRuns(SphinxDirective):
    required_arguments = 1
    option_spec = {"columns": directives.unchanged_required}  # noqa: RUF012

    @told_on_the_page
    def run(self):
        path = path_of(self.arguments[0])
        self.env.note_dependency(str(path))
        chosen = columns(self.options.get("columns", ""))
        with using(path):
            record = read(path)
            arms = lines(record, chosen)
            seeds = len({run["seed"] for run in record["runs"]})
            versions = ", ".join(f"{name} {number}" for name, number in record["versions"].items())
            command = str(record["command"])
        group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in ["", *chosen]), cols=1 + len(chosen))
        head, body = nodes.thead(), nodes.tbody()
        head += row(["arm", *chosen.values()])
        for cells in arms:
            body += row(cells)
        group += [head, body]
        note = nodes.paragraph("", f"Mean [smallest, largest] of {seeds} seeds. Recorded with {versions}, by ")
        note += [nodes.literal("", command), nodes.Text(".")]
        return [nodes.table("", group), note]


def row(cells):
    return nodes.row("", *(nodes.entry("", nodes.paragraph("", cell)) for cell in cells))


def setup(app):
    app.add_directive("recorded-runs", RecordedRuns)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
