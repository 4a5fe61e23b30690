"""`{algorithm-table}`: the library's own tables, rendered when the book is built, so that they cannot drift.

```{algorithm-table}
```

```{algorithm-table} pairwise
```
"""

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

import rlhf_minimal


class AlgorithmTable(SphinxDirective):
    optional_arguments = 1

    def run(self):
        tables = {"": rlhf_minimal.ALGORITHMS, "pairwise": rlhf_minimal.PAIRWISE}
        name = "".join(self.arguments)
        if name not in tables:
            raise self.error(f"algorithm-table: there is no table {name!r}: expected pairwise, or nothing")
        rows = tables[name]
        box = nodes.container(classes=["algorithm-table"])
        lines = StringList(rlhf_minimal.table(rows).splitlines(), source="rlhf_minimal.table()")
        self.state.nested_parse(lines, self.content_offset, box)
        # The page is stale whenever the library is newer.
        for file in ("algorithms.py", "anatomy.py", "objective.py", "pairwise.py"):
            self.env.note_dependency(f"{rlhf_minimal.__path__[0]}/{file}")
        return [box]


def setup(app):
    app.add_directive("algorithm-table", AlgorithmTable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
