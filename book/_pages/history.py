"""The page on history: a timeline, the family tree of the rows, and what to read, from their sources.

The papers are listed in book/data/history.yml, which row is a step from which in rlhf_minimal/row_facts.yml, and what
a step changes is computed by `diff` from the rows that run. The tree is drawn when the page is built, in its colours.
"""

from functools import cache
from html import escape

from docutils.nodes import make_id

from bibliography import papers
from data_files import ROOT, read, using
from printing import table
from rlhf_book.facts import facts_of, families
from rlhf_minimal import ALGORITHMS, diff

HISTORY = ROOT / "book" / "data" / "history.yml"
LINE, INDENT, TOP, LEFT, WIDTH = 26, 22, 22, 14, 700  # pixels of the drawing
# Of the timeline: pixels a month before and after the year in which months fill up, between two lines of names, up
# to the axis.
SLOW, FAST, BUSY, APART, AXIS = 3, 18, 2023, 17, 44


@cache
def entries(kind):
    """The entries of the timeline, of what to read, or of the cells that are ours."""
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
        named = f"**{entry['name']}** {source(entry['paper'])}"
        lines.append([month(entry["paper"]), named, ", ".join(rows), entry["changed"]])
    return table(["month", "paper", "row", "what is different after it"], lines)


def since(when):
    """Pixels from January 2015 to a month, to scale on both sides of January 2023; a year alone is its middle."""
    year, _, number = when.partition("-")
    months = 12 * (int(year) - BUSY) + (int(number) - 1 if number else 6)
    return 12 * SLOW * (BUSY - 2015) + months * (FAST if months > 0 else SLOW)


def drawn_timeline():
    """The timeline as a drawing: years to scale on an axis, beside it the papers of each month by their names."""
    months = {}
    for entry in entries("timeline"):
        months.setdefault(month(entry["paper"]), []).append(entry)
    first, *later = sorted(months, key=since)
    parts, at, lowest = [], {first: (14, 14)}, 14
    for when in later:
        dot = 44 + since(when)
        lowest = max(dot, lowest + APART)
        at[when] = (dot, lowest)
    last = max(dot for dot, _ in at.values())
    parts.append(f'<path class="edge" d="M{AXIS},14 V22 m-4,4 h8 m-8,4 h8 m-4,4 V{last + 12}"/>')
    for year in range(2015, int(later[-1][:4]) + 1):
        y = 44 + since(f"{year}-01")
        parts.append(f'<path class="edge" d="M{AXIS - 4},{y} h4"/><text class="when" x="0" y="{y + 4}">{year}</text>')
    parts.append(f'<text class="when" x="0" y="18">{first}</text>')
    for when, (dot, y) in at.items():
        parts.append(f'<path class="edge" d="M{AXIS},{dot} L{AXIS + 16},{y} h6"/>')
        words = []
        for entry in months[when]:
            rows = entry.get("rows", ())
            shade = families()[facts_of(rows[0]).family].color if rows else "currentColor"
            dotted = f'<tspan class="dot" fill="{shade}">{"●" if rows else "○"}</tspan>'
            style = "name" if "-" in when or when == first else "name year-only"
            words.append(
                f'{dotted} <tspan class="{style}">{escape(entry["name"])}<title>{when}: {escape(entry["changed"])}'
                "</title></tspan>"
            )
        parts.append(f'<text x="{AXIS + 26}" y="{y + 4}">{"  ".join(words)}</text>')
    height = max(lowest, last) + 16
    alt = f"A timeline of {len(entries('timeline'))} papers, from {first} to {later[-1]}; the table below has the same."
    return (
        f'<svg class="family-tree drawn-timeline" width="375" height="{height}" viewBox="0 0 375 {height}" role="img" '
        f'aria-label="{escape(alt)}">{"".join(parts)}</svg>'
    )


def reading():
    """What to read, and why."""
    lines = []
    for entry in entries("reading"):
        key = entry.get("paper")
        title = papers()[key]["title"] if key else f"[{entry['title']}]({entry['link']})"
        named = f"*{title}* ({month(key)}, {source(key)})" if key else title
        lines.append(f"- {named}. {entry['why']} [Worked out here](../{entry['chapter']}.ipynb).")
    return "\n".join(lines)


# ── the family tree ──────────────────────────────────────────────────────────────────────────────────────────────


def changed(start, row):
    """The columns in which two rows differ."""
    return [part.split(": ", 1)[0] for part in diff(start, row).split("; ")]


def born(row):
    """When a row was made: the month of its paper on the timeline, or those of the first and the last of several."""
    months = [month(entry["paper"]) for entry in entries("timeline") if row in entry.get("rows", ())]
    return " to ".join(dict.fromkeys([*months[:1], *months[-1:]]))


def ours(row):
    """The columns whose cell the row's papers do not have: they leave it open, or libraries run another."""
    return entries("ours").get(row, {}).get("columns", [])


def columns(start, row):
    """The columns in which a row differs from another, with a star at those that its papers do not have."""
    return ", ".join(name + "*" * (name in ours(row)) for name in changed(start, row))


@cache
def nearest():
    """Row -> the row that it is a step from; of several the one with the fewest changed cells. None for the first."""
    found = {}
    for row in ALGORITHMS:
        starts = [step.start for step in facts_of(row).steps]
        found[row] = min(starts, key=lambda start: len(changed(start, row)), default=None)
    return found


def not_descent():
    """What the tree is not: a row older than the one above it, and how many rows have a nearer one than that."""
    older, above = "dro", nearest()["dro"]
    starts = {row: start for row, start in nearest().items() if start is not None}
    nearer = {}
    for row, start in starts.items():
        others = {other: len(changed(other, row)) for other in ALGORITHMS if other != row}
        best = min(others, key=others.get)
        if others[best] < others[start]:
            nearer[row] = (best, others[best])
    best, count = nearer[older]
    return (
        f"{facts_of(older).title} ({born(older)}) hangs below {facts_of(above).title} ({born(above)}), from which it "
        f"differs in {len(changed(above, older))} columns, and differs from {facts_of(best).title} in {count}. Of the "
        f"{len(starts)} rows below another, {len(nearer)} have a row somewhere that is nearer in cells than the one "
        "above them."
    )


def key():
    """A dot a family of rows, with its title."""
    used = [facts_of(row).family for row, _ in in_order()]
    dots = "".join(
        f'<li><svg width="14" height="14" viewBox="0 0 14 14" aria-hidden="true"><circle cx="7" cy="7" r="6" '
        f'fill="{families()[name].color}"/></svg> {escape(families()[name].title)}</li>'
        for name in dict.fromkeys(used)
    )
    return f'<ul class="family-tree-key" aria-label="Families of rows, by the colour of their dots">{dots}</ul>'


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
            words += f' <tspan class="columns">{escape(columns(start, row))}{also}</tspan>'
        told = "where the table begins" if start is None else f"from {facts_of(start).title}: {diff(start, row)}"
        parts.append(
            f'<a href="{place_of(row)}"><title>{escape(told)}</title><text x="{x + 12}" y="{y + 5}">{words}</text></a>'
        )
    alt = (
        f"A tree of {len(rows)} algorithms. It begins with REINFORCE. Each line names one, its months, and the "
        "columns of the table that change from the row above it that it is a step from. "
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
        if ours(row):
            said += (
                f" (not the papers': {', '.join(f'`{name}`' for name in ours(row))}; {entries('ours')[row]['instead']})"
            )
        lines.append("  " * depth + f"- {said}")
    return "\n".join(lines)
