"""The page on history: a timeline, the family tree of the rows, and what to read, from their sources.

The papers are listed in book/data/history.yml, who descends from whom in rlhf_minimal/rows.yml, and what a step changes
is computed by `diff` from the rows that run. The tree is drawn when the page is built, in the page's own colour.
"""

import re
from functools import cache
from html import escape

from data_files import ROOT, read, using
from docutils.nodes import make_id
from generated import table

from rlhf_minimal import ALGORITHMS, diff
from rlhf_minimal.facts import facts_of, families

HISTORY = ROOT / "book" / "data" / "history.yml"
BIBLIOGRAPHY = ROOT / "book" / "references.bib"
LINE, INDENT, TOP, LEFT, WIDTH = 26, 22, 22, 14, 700  # pixels of the drawing


@cache
def papers():
    """Key -> {title, eprint, year}, from the bibliography."""
    text = BIBLIOGRAPHY.read_text(encoding="utf-8")
    found = {}
    for key, body in re.findall(r"^@\w+\{([^,]+),\n(.*?)^\}", text, re.MULTILINE | re.DOTALL):
        fields = dict(re.findall(r"^\s*(\w+) = \{(.*)\},?$", body, re.MULTILINE))
        found[key] = {name: fields.get(name, "") for name in ("title", "eprint", "year")}
    return found


def entries(kind):
    """The entries of the timeline, or of what to read."""
    with using(HISTORY):
        return read(HISTORY)[kind]


def month(key):
    """2017-07 by the arXiv number, or the year of a paper without one."""
    paper = papers()[key]
    number = paper["eprint"]
    return f"20{number[:2]}-{number[2:4]}" if number else paper["year"]


def source(key):
    """A link to the paper, or its citation where it is not on the arXiv."""
    number = papers()[key]["eprint"]
    return f"[{number}](https://arxiv.org/abs/{number})" if number else f"{{cite:p}}`{key}`"


def timeline():
    """A line a paper: when, what it is called, what changed, and the row that it became."""
    lines = []
    for entry in entries("timeline"):
        rows = [f"`{name}`" for name in (*entry.get("rows", ()), *entry.get("pairs", ()))]
        lines.append([month(entry["paper"]), entry["name"], source(entry["paper"]), ", ".join(rows), entry["changed"]])
    return table(["month", "name", "arXiv", "row", "what is different after it"], lines)


def reading():
    """What to read, and why."""
    lines = []
    for entry in entries("reading"):
        key = entry.get("paper")
        title = re.sub(r"[{}]", "", papers()[key]["title"]) if key else f"[{entry['title']}]({entry['link']})"
        named = f"*{title}* ({month(key)}, {source(key)})" if key else title
        lines.append(f"- {named}. {entry['why']} [Worked out here](../{entry['chapter']}.ipynb).")
    return "\n".join(lines)


# ── the family tree ──────────────────────────────────────────────────────────────────────────────────────────────


def changed(start, row):
    """The columns in which two rows differ."""
    return [part.split(": ", 1)[0] for part in diff(start, row).split("; ")]


def born(row):
    """The month of a row: that of the last paper on the timeline that is it, since its cells are whole only then."""
    return next((month(entry["paper"]) for entry in reversed(entries("timeline")) if row in entry.get("rows", ())), "")


@cache
def nearest():
    """Row -> the row that it is a step from; of several the one with the fewest changed cells. None for the first."""
    found = {}
    for row in ALGORITHMS:
        starts = [step.start for step in facts_of(row).steps]
        found[row] = min(starts, key=lambda start: len(changed(start, row)), default=None)
    return found


def in_order():
    """Every row once, (row, depth): a row stands below the one that it is a step from, siblings by date."""

    def below(parent, depth):
        for row in sorted((row for row, start in nearest().items() if start == parent), key=lambda row: born(row)):
            yield row, depth
            yield from below(row, depth + 1)

    return list(below(None, 0))


def place_of(row):
    """Where the book says more of a row: the step that leads to it."""
    start = nearest()[row]
    if start is None:
        return "algorithms.html"
    return f"paper-to-paper.html#{make_id(f'{facts_of(start).title} to {facts_of(row).title}')}"


def others(row):
    """The further rows that a row is a step from."""
    return [step.start for step in facts_of(row).steps if step.start != nearest()[row]]


def svg():
    """The tree as a drawing: a line a row, a stroke to the row that it is a step from, the columns that change."""
    rows = in_order()
    height = TOP + LINE * len(rows)
    at = {row: (LEFT + INDENT * depth, TOP + LINE * number) for number, (row, depth) in enumerate(rows)}
    parts = []
    for row, (x, y) in at.items():
        facts, start = facts_of(row), nearest()[row]
        if start is not None:
            from_x, from_y = at[start]
            parts.append(f'<path class="edge" d="M{from_x},{from_y + 6} V{y} H{x - 6}"/>')
        parts.append(f'<circle cx="{x}" cy="{y}" r="6" fill="{families()[facts.family].color}"/>')
        words = f'<tspan class="row">{escape(facts.title)}</tspan> <tspan class="when">{born(row)}</tspan>'
        if start is not None:
            also = "".join(f" · also from {escape(facts_of(one).title)}" for one in others(row))
            words += f' <tspan class="columns">{escape(", ".join(changed(start, row)))}{also}</tspan>'
        told = "where the table begins" if start is None else f"from {facts_of(start).title}: {diff(start, row)}"
        parts.append(
            f'<a href="{place_of(row)}"><title>{escape(told)}</title><text x="{x + 12}" y="{y + 5}">{words}</text></a>'
        )
    alt = (
        f"A tree of {len(rows)} algorithms. It begins with REINFORCE. Each line names one, its month, and the "
        "columns of the table that change from the row above it that it descends from. "
        "The same tree stands in words below."
    )
    return (
        f'<svg class="family-tree" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="group" '
        f'aria-label="{escape(alt)}">{"".join(parts)}</svg>'
    )


def tree():
    """The drawing in a box that scrolls, for `{generated}`."""
    return f'<div class="family-tree-box" tabindex="0" role="region" aria-label="Family tree">{svg()}</div>'


def tree_in_words():
    """The same tree as a list: every step with the cells that change, and what it leaves open."""
    lines = []
    for row, depth in in_order():
        facts = facts_of(row)
        said = f"**{facts.title}** ({born(row)})"
        for start in [nearest()[row], *others(row)]:
            if start is not None:
                cells = diff(start, row).replace("; ", "`; `").replace("->", "→")
                said += f", from {facts_of(start).title}: `{cells}`"
        lines.append("  " * depth + f"- {said}")
    return "\n".join(lines)
