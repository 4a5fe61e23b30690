"""Pages that say something of every row: from the cells, and from what rlhf_minimal/row_facts.yml says beside them.

Functions that return Markdown, for `{generated}`. A new row is on all of these pages without a change to any.
"""

import rlhf_minimal
from equation_index import unwrapped
from printing import box, code, table
from rlhf_book.facts import facts_of, families
from rlhf_minimal import contrib

BETWEEN = ("algorithm", "advantage", "ratio", "gate", "aggregate")  # the objective shows them; the rest is "further"


def pairwise():
    """The second table, of losses that learn from pairs."""
    return rlhf_minimal.table(rlhf_minimal.PAIRWISE)


# What the front page says of a cell, before any name means something. A cell without words is refused.
WORDS = {
    "advantage": {
        "returns_to_go": "its own reward",
        "leave_one_out": "its reward minus the mean of the others",
        "gae": "a critic that judges every token",
        "group_normalized": "its reward minus the group's mean, over their spread",
    },
    "ratio": {"on_policy": "none: a sample is used once", "token": "each token"},
    "gate": {"none": "nothing", "clip": "a clip"},
    "aggregate": {"sequence_sum": "summed", "sequence_mean": "averaged"},
}


def in_words(*names):
    """Some rows of the table in words: what a completion is pushed by, and how far."""
    head = ["", "pushed by", "ratio, old policy to new", "limited by", "its tokens are"]
    lines = []
    for name in names:
        row, words = rlhf_minimal.ALGORITHMS[name], []
        for column, known in WORDS.items():
            cell = unwrapped(getattr(row, column)).__name__
            if cell not in known:
                raise ValueError(f"{name}: no words for its {column} {cell}; there are some for {', '.join(known)}")
            words.append(known[cell])
        lines.append([facts_of(name).title, *words])
    return table(head, lines)


def field():
    """The rows of `contrib`, which the table leaves out."""
    return rlhf_minimal.table(contrib.ALGORITHMS)


def changes(first, second):
    """What changes from one row to another, a line a cell."""
    parts = (part.split(": ", 1) for part in rlhf_minimal.diff(first, second).split("; ") if part)
    lines = ([column, *map(code, cells.split(" -> "))] for column, cells in parts)
    return table(["column", code(first), code(second)], lines)


def distances():
    """In how many cells any two rows differ."""
    names = list(rlhf_minimal.ALGORITHMS)

    def apart(one, two):
        return str(len(rlhf_minimal.diff(one, two).split("; "))) if one != two else ""

    return table(["", *map(code, names)], ([code(one), *(apart(one, two) for two in names)] for one in names))


def steps():
    """Every step from one row to another, under the title of the family that it leads to."""
    rows = {name: facts_of(name) for name in rlhf_minimal.ALGORITHMS}
    text = []
    for key, family in families().items():
        found = [(name, step) for name, row in rows.items() if row.family == key for step in row.steps]
        text += [f"## {family.title}"] if found else []
        for name, step in found:
            text += [
                f"### {rows[step.start].title} to {rows[name].title}",
                box("algorithm-diff", changes(step.start, name)),
                f"**Addresses** {step.addresses}",
                f"**Leaves open** {step.leaves_open}",
            ]
            text += [f"**Derived, run and measured in** {step.measured_in}"] if step.measured_in else []
    return "\n\n".join(text)


def cheat_sheet():
    """A line a row of `algorithms.py`: advantage, objective, what a token's score is multiplied by, and why."""
    return sheet_of([name for name in rlhf_minimal.ALGORITHMS if name not in contrib.ALGORITHMS])


def cheat_sheet_of_the_field():
    """The same of the rows of `contrib`."""
    return sheet_of(contrib.ALGORITHMS)


def sheet_of(names):
    """The lines of some rows."""
    head = ["", "A", "objective, to maximise", "weight on ∇ log π of a token", "its share", "further", "why"]
    lines = []
    for name in names:
        says, shown = facts_of(name), cells(name)
        rest = "; ".join(cell for column, cell in shown.items() if column not in BETWEEN)
        formulas = [set_in_lines(formula) for formula in (says.objective, says.weight, says.share)]
        lines.append([f"**{name}**", shown["advantage"], *formulas, rest, says.why])
    return table(head, lines)


def set_in_lines(formula):
    """A formula of row_facts.yml, which may break where it has a semicolon."""
    return "  ".join(f"${part.strip()}$" for part in formula.split(";"))


def cells(row):
    """column -> cell as the table prints it, for the columns that the row, or that of this name, uses."""
    head, _, line = rlhf_minimal.table(
        {"x": rlhf_minimal.ALGORITHMS[row] if isinstance(row, str) else row}
    ).splitlines()
    split = ([part.strip() for part in text.strip("|").split("|")] for text in (head, line))
    return dict(zip(*split, strict=True))
