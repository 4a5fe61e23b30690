"""Numbers of chapters and exercises, so that somebody can say "do 3.4". They are made when the book is built.

A chapter is a notebook of `_toc.yml`, counted in its order; `x-in-depth` shares the number of `x`. Exercises and bugs
to find are counted through a chapter, in the order in which it sets them, the depth after the core. Nothing of Sphinx
in here.
"""

from functools import cache

from data_files import ROOT, cells_of, pages_of_the_book

DEPTH = "-in-depth"


@cache
def chapters():
    """Page -> number, for every notebook of the book."""
    found = {}
    for page in pages_of_the_book():
        if page.startswith("notebooks/"):
            core = page.removesuffix(DEPTH)
            found[page] = found[core] if core in found else len(set(found.values())) + 1
    return found


def numbered(title, page):
    """A title as the book prints it: with the number of its chapter, if it is one."""
    return f"{chapters()[page]}. {title}" if page in chapters() else title


@cache
def origins(page):
    """What the cells of a notebook are made of, ("exercise", "grpo-k3", "stub"); nothing of one that is missing."""
    path = ROOT / f"{page}.ipynb"
    cells = cells_of(path) if path.is_file() else ()
    return tuple(origin(cell) for cell in cells if cell["metadata"].get("from"))


def origin(cell):
    """The source of a cell, cut at its slashes."""
    return tuple(str(cell["metadata"].get("from", "")).split("/"))


def set_by(origins):
    """The ids of the exercises and bugs whose statements are among these sources, in their order."""
    return [one[1] for one in origins if len(one) == 3 and one[0] in ("exercise", "bug") and one[2] == "statement"]


@cache
def exercises():
    """Id -> "3.4", for every exercise and bug that a chapter sets."""
    found, counts = {}, {}
    for page, number in chapters().items():
        for name in set_by(origins(page)):
            counts[number] = counts.get(number, 0) + 1
            found[name] = f"{number}.{counts[number]}"
    return found
