"""A table of words is a row of cards on a phone: each cell carries the heading of its column.

Only tables whose words would not fit beside each other; a table of numbers, and the wide tables that are read across,
stay as they are. What a screen reader is told of rows and cells is written out, since a browser forgets it where a row
is no longer drawn as one. The drawing is in book.css, below 600 px.
"""

import re
from html import escape, unescape

ROOM = 42  # characters that stand beside each other on a phone
WORD = 24  # a longer cell breaks its lines
ACROSS = "sortable", "cheat-sheet", "algorithm-table", "algorithm-distances", "dataframe", "coverage", "exercises"
GREEK = dict(
    zip("alpha beta gamma delta epsilon lambda mu pi rho sigma tau theta".split(), "αβγδελμπρστθ", strict=True)
)

TABLE = re.compile(r'(<div class="[^"]*">\s*)?<table class="([^"]*\btable\b[^"]*)"([^>]*)>(.*?)</table>', re.DOTALL)
ROW = re.compile(r"<tr([^>]*)>(.*?)</tr>", re.DOTALL)
CELL = re.compile(r"<(t[hd])([^>]*)>(.*?)</\1>", re.DOTALL)


def said(cell):
    """What a reader sees of a cell; a formula takes about half of what it is written with."""
    formulas = sum(map(len, re.findall(r"\\\(.*?\\\)", cell, re.DOTALL))) // 2
    words = re.sub(r"<[^>]+>", "", re.sub(r"\\\(.*?\\\)", "", cell, flags=re.DOTALL))
    return " ".join(unescape(words).split()) + "x" * formulas


def room(rows):
    """The characters that the columns need beside each other."""
    return sum(max(min(len(said(cell)), WORD) for cell in column) for column in zip(*rows, strict=True))


def carded(match):
    """The table with headings on its cells, if its words would not fit beside each other."""
    box, classes, rest, inside = match.groups()
    rows = [[cell for _, _, cell in CELL.findall(row)] for _, row in ROW.findall(inside)]
    if (
        set(ACROSS) & set(f"{box or ''} {classes}".replace('"', " ").split())
        or "span=" in inside
        or "<thead" not in inside
        or len({len(row) for row in rows}) != 1
        or len(rows) < 2
        or len(rows[0]) < 3
        or room(rows) <= ROOM
    ):
        return match[0]
    names = [escape(re.sub(r"\\\((.*?)\\\)", r"\1", said(cell))) for cell in map(_without_formula, rows[0])]

    def row(found):
        cells = CELL.findall(found[2])
        roles = "".join(
            f'<{kind}{rest} role="{"columnheader" if kind == "th" else "cell"}"{_label(kind, name)}>{cell}</{kind}>\n'
            for (kind, rest, cell), name in zip(cells, names, strict=True)
        )
        return f'<tr{found[1]} role="row">{roles}</tr>'

    inside = re.sub(r"<(thead|tbody)", r'<\1 role="rowgroup"', ROW.sub(row, inside))
    return f'{box or ""}<table class="{classes} cards"{rest} role="table">{inside}</table>'


def _without_formula(cell):
    """A heading that is a formula is told in its letters."""
    letters = re.sub(r"\\(?:mathrm|text|operatorname)\{([^}]*)\}", r"\1", cell)
    letters = re.sub(r"\\(var)?([a-z]+)", lambda found: GREEK.get(found[2], found[0]), letters)
    return re.sub(r"\\[()]|[\\{}$]", "", letters)


def _label(kind, name):
    return f' data-label="{name}"' if kind == "td" and name else ""


def add(app, pagename, templatename, context, doctree):
    if context.get("body"):
        context["body"] = TABLE.sub(carded, context["body"])


def setup(app):
    app.connect("html-page-context", add)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
