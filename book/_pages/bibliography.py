"""The entries of book/references.bib as plain text, for pages that name a paper without citing it."""

from functools import cache

from pybtex.database import parse_file
from pybtex.richtext import Text

from data_files import ROOT

BIBLIOGRAPHY = ROOT / "book" / "references.bib"


def plain(text):
    r"""A field without TeX's braces and with its accents: `T{\"u}lu` becomes Tülu."""
    return str(Text.from_latex(text))


@cache
def papers():
    """Key -> title, arXiv number (eprint), year and who wrote it ("Schulman et al."); what an entry lacks is empty."""
    found = {}
    for key, entry in parse_file(str(BIBLIOGRAPHY)).entries.items():
        first, *others = entry.persons["author"]
        found[key] = {name: plain(entry.fields.get(name, "")) for name in ("title", "eprint", "year")}
        found[key]["who"] = plain(" ".join([*first.prelast_names, *first.last_names])) + " et al." * bool(others)
    return found
