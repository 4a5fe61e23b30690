"""Numbers of chapters and exercises, so that somebody can say "do 3.4". They are made when the book is built.

A chapter is a notebook of `_toc.yml`, counted in its order; `x-in-depth` shares the number of `x`. Exercises and bugs
to find are counted through a chapter, in the order in which it sets them, the depth after the core. Nothing of Sphinx
in here.
"""

from functools import cache

from data_files import ROOT, pages_of_the_book, read, using

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


def set_by(cells):
    """The ids of the exercises and bugs whose statements stand in these cells, in their order."""
    origins = [str(cell["metadata"].get("from", "")).split("/") for cell in cells]
    return [o[1] for o in origins if len(o) == 3 and o[0] in ("exercise", "bug") and o[2] == "statement"]


@cache
def set_on(page):
    """The same of a page; one without its notebook sets nothing."""
    path = ROOT / f"{page}.ipynb"
    if not path.is_file():
        return []
    with using(path):
        return set_by(read(path)["cells"])


@cache
def exercises():
    """Id -> "3.4", for every exercise and bug that a chapter sets."""
    found, counts = {}, {}
    for page, number in chapters().items():
        for name in set_on(page):
            counts[number] = counts.get(number, 0) + 1
            found[name] = f"{number}.{counts[number]}"
    return found
