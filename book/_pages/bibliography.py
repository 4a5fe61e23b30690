"""The entries of book/references.bib as plain text, for pages that name a paper without citing it."""

import re
import unicodedata
from functools import cache

from data_files import ROOT

BIBLIOGRAPHY = ROOT / "book" / "references.bib"
# What TeX puts over or under a letter -> the combining character that does the same.
ACCENTS = dict(zip("`'^\"~=.cv", "\u0300\u0301\u0302\u0308\u0303\u0304\u0307\u0327\u030c", strict=True))


def plain(text):
    r"""A field without TeX's braces and with its accents: `T{\"u}lu` becomes Tülu."""

    def letter(found):
        accent, base = found["accent"] or found["word"], found["base"]
        return unicodedata.normalize("NFC", base.replace("\\i", "i") + ACCENTS[accent])

    accented = r"\\(?:(?P<accent>[`'^\"~=.])|(?P<word>[cv])(?=[\s{]))\s*\{?(?P<base>\\?[A-Za-z])\}?"
    return re.sub(r"[{}]", "", re.sub(accented, letter, text))


@cache
def papers():
    """Key -> {field: plain text} of every entry; a field that an entry lacks is empty."""
    text = BIBLIOGRAPHY.read_text(encoding="utf-8")
    found = {}
    for key, body in re.findall(r"^@\w+\{([^,\s]+),\n(.*?)^\}", text, re.MULTILINE | re.DOTALL):
        fields = dict(re.findall(r"^\s*(\w+)\s*=\s*\{(.*)\},?$", body, re.MULTILINE))
        found[key] = {name: plain(fields.get(name, "")) for name in ("author", "title", "eprint", "year")}
    return found
